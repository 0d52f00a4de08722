// One attempt to tell a receiver: at most 10 s, no redirect, nothing of its answer kept (20 §7).
import type { Clock } from '#protocol/clock.ts';

const TIMEOUT_MS = 10_000;

export interface Post {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** Null when it was taken, else why not. Rejects only when `ending` aborts. */
export async function postNotice(
  { url, headers, body }: Post,
  around: { readonly clock: Clock; readonly fetch: typeof fetch; readonly ending: AbortSignal },
): Promise<string | null> {
  const stop = new AbortController();
  const timer = around.clock.after(TIMEOUT_MS, () => stop.abort());
  const onEnd = () => stop.abort();
  around.ending.addEventListener('abort', onEnd, { once: true });
  try {
    around.ending.throwIfAborted();
    const response = await around.fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body,
      redirect: 'manual',
      signal: stop.signal,
    });
    // Whatever it says beyond its status is of no interest, however long it goes on.
    await response.body?.cancel().catch(() => {});
    return response.ok ? null : `answered ${response.status}`;
  } catch (error) {
    around.ending.throwIfAborted();
    return stop.signal.aborted ? 'did not answer within 10 s' : describeFailure(error);
  } finally {
    timer.cancel();
    around.ending.removeEventListener('abort', onEnd);
  }
}

/** The system's code, never a text that may hold the URL. */
function describeFailure(error: unknown): string {
  const cause = error instanceof Error ? error.cause : null;
  const code = cause instanceof Error && 'code' in cause ? cause.code : null;
  return typeof code === 'string' ? `cannot be reached (${code})` : 'cannot be reached';
}
