// `Prefer: wait`: an answer that is held back until there is more to say (18 §2).
import type { FastifyRequest } from 'fastify';
import type { RouteDeps } from './deps.ts';

const MAX_WAIT_SECONDS = 600;

/**
 * Waits as long as the request asks for, at most until its client or the server goes; false when it did not ask.
 * @param wait resolves earlier when there is nothing to wait for any more
 */
export async function waitAsPreferred(
  { closing }: Pick<RouteDeps, 'closing'>,
  request: FastifyRequest,
  wait: (ms: number, signal: AbortSignal) => Promise<void>,
): Promise<boolean> {
  const seconds = waitOf(request.headers.prefer);
  if (seconds === null) return false;
  const enough = new AbortController();
  const stop = () => enough.abort();
  const { socket } = request.raw;
  socket.once('close', stop);
  closing.addEventListener('abort', stop);
  try {
    await wait(seconds * 1000, enough.signal);
  } finally {
    // Both outlive this request.
    socket.off('close', stop);
    closing.removeEventListener('abort', stop);
  }
  return true;
}

/** Whole seconds of a `wait` preference, at most 600; null without one. */
function waitOf(prefer: string | string[] | undefined): number | null {
  const seconds = /(?:^|[,;])\s*wait\s*=\s*"?(\d{1,9})"?\s*(?:$|[,;])/i.exec([prefer ?? ''].flat().join(','))?.[1];
  return seconds === undefined ? null : Math.min(MAX_WAIT_SECONDS, Number(seconds));
}
