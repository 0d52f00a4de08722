// The `fetch` of an MCP server over HTTP: bodies and events are checked before the library parses them (09 §11).
import { createParser } from 'eventsource-parser';
import { faultOfJson } from '#core/policy/parsing/json.ts';
import { type Clock, sleep } from '#protocol/clock.ts';
import { beginSlice, MESSAGE_LIMITS, type OnFault } from './message-limits.ts';

/**
 * A `fetch` that rejects messages above the limits and reports a lost connection. Without the report the library would
 * wait forever for a request whose answer was interrupted.
 * @param options.transport `sse` is the older transport: one stream carries all answers, and requests get a short acknowledgement
 */
export function guardedFetch(
  plain: typeof fetch,
  {
    clock,
    onFault,
    transport,
  }: { readonly clock: Clock; readonly onFault: OnFault; readonly transport: 'http' | 'sse' },
): typeof fetch {
  const sse = transport === 'sse';
  return async (input, init) => {
    const listening = !sse && init?.method === 'GET';
    const reportLost = (error: unknown, reason: string) => {
      // The library reopens the stream of notifications itself.
      if (init?.signal?.aborted !== true && !listening) onFault(reason);
      return error;
    };
    let response: Response;
    try {
      response = await plain(input, init);
    } catch (error) {
      throw reportLost(error, `cannot be reached (${errorCause(error)})`);
    }
    const { status, statusText, headers, body } = response;
    // A restarted server does not know the session and answers with either status.
    if (status === 400 || status === 404) reportLost(null, `answered with HTTP status ${status}`);
    if (body === null) return response;
    if (isEventStream(response)) {
      const events = guardedEvents(body, clock, {
        onTooLarge: onFault,
        onLost: (error) => void reportLost(error, `closed the connection during a call (${errorCause(error)})`),
        onEnd(answered) {
          if (sse) reportLost(null, 'closed the connection');
          else if (!answered) reportLost(null, 'closed the connection without an answer');
        },
      });
      return new Response(events, { status, statusText, headers });
    }
    const text = await limitedText(body).catch((error: unknown) => {
      throw reportLost(error, `closed the connection during an answer (${errorCause(error)})`);
    });
    let fault: string | null = null;
    if (text === null) fault = `has more than ${MESSAGE_LIMITS.bytes} bytes`;
    else if (!sse) fault = faultOfJson(text, MESSAGE_LIMITS);
    if (fault !== null) {
      onFault(`sent a message that ${fault}`);
      throw new Error(fault);
    }
    return new Response(text, { status, statusText, headers });
  };
}

interface EventEnds {
  readonly onTooLarge: OnFault;
  readonly onLost: (error: unknown) => void;
  /** @param answered whether an answer came, or may come over a later stream */
  readonly onEnd: (answered: boolean) => void;
}

/** The same events, each within the limits. */
function guardedEvents(body: ReadableStream<Uint8Array>, clock: Clock, ends: EventEnds): ReadableStream<Uint8Array> {
  const decoder = new TextDecoder();
  const encoder = new TextEncoder();
  const reader = body.getReader();
  let written: string[] = [];
  let resumable = false;
  let answered = false;
  const parser = createParser({
    onEvent({ id, event, data }) {
      // The older transport starts with an address, which is not a message.
      const fault = event === 'endpoint' ? null : faultOfJson(data, MESSAGE_LIMITS);
      if (fault !== null) throw new TooLarge(fault);
      resumable ||= id !== undefined;
      answered ||= data !== '';
      let text = '';
      if (event) text += `event: ${event}\n`;
      if (id !== undefined) text += `id: ${id}\n`;
      for (const line of data.split('\n')) text += `data: ${line}\n`;
      written.push(`${text}\n`);
    },
    onRetry: (ms) => void written.push(`retry: ${ms}\n\n`),
    onError(error) {
      if (error.type === 'max-buffer-size-exceeded') throw new TooLarge(`has more than ${MESSAGE_LIMITS.bytes} bytes`);
    },
    maxBufferSize: MESSAGE_LIMITS.bytes,
  });
  return new ReadableStream({
    async pull(controller) {
      try {
        while (written.length === 0) {
          const { done, value } = await reader.read();
          if (done) {
            ends.onEnd(answered || resumable);
            return controller.close();
          }
          const pauseNow = beginSlice(clock);
          const before = written.length;
          parser.feed(decoder.decode(value, { stream: true }));
          const pause = pauseNow(written.length - before);
          if (pause > 0) await sleep(clock, pause);
        }
        for (const text of written) controller.enqueue(encoder.encode(text));
        written = [];
      } catch (error) {
        if (error instanceof TooLarge) ends.onTooLarge(`sent a message that ${error.message}`);
        else ends.onLost(error);
        controller.error(error);
      }
    },
    cancel: (reason) => reader.cancel(reason),
  });
}

class TooLarge extends Error {}

function isEventStream(response: Response): boolean {
  return (response.headers.get('content-type') ?? '').split(';')[0]?.trim().toLowerCase() === 'text/event-stream';
}

/** Null when it is too long. */
async function limitedText(body: ReadableStream<Uint8Array>): Promise<string | null> {
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const part of body) {
    size += part.length;
    if (size > MESSAGE_LIMITS.bytes) return null;
    parts.push(part);
  }
  return Buffer.concat(parts).toString('utf8');
}

function errorCause(error: unknown): string {
  const { cause } = error as { cause?: { code?: unknown } };
  if (typeof cause?.code === 'string') return cause.code;
  return 'network error';
}
