// A request's body that may have to be sent again: it goes on as it comes, and is kept until somebody has taken it (16 §5.2).
import type { IncomingMessage } from 'node:http';
import { AppError } from '#protocol/errors.ts';

export interface HeldBody {
  /** Null = as long as the request says. */
  readonly bytes: number | null;
  /** From its first byte, however much was read before. One reader at a time. */
  read(): AsyncGenerator<Buffer>;
  /** It was taken: what has been read is dropped, and what still comes is not kept. */
  taken(): void;
  /** Nobody reads it any more: what still comes is thrown away. */
  discard(): void;
}

/**
 * Reads only as fast as its reader.
 * @param most bytes; beyond them a read throws `payload_too_large`
 */
export function holdBody(raw: IncomingMessage, most: number): HeldBody {
  const kept: (Buffer | null)[] = [];
  let bytes = 0;
  /** Pieces that the reader has taken; an earlier reader takes no more. */
  let reached = 0;
  let readers = 0;
  let fault: Error | null = null;
  let mode: 'kept' | 'taken' | 'discarded' = 'kept';
  const waiting = new Set<() => void>();
  const wake = () => {
    for (const go of [...waiting]) go();
    waiting.clear();
  };
  const fail = (error: Error) => {
    fault ??= error;
    wake();
  };

  raw.on('data', (piece: Buffer) => {
    if (mode === 'discarded') return;
    bytes += piece.byteLength;
    if (bytes > most)
      fail(new AppError('payload_too_large', `the body is larger than the ${most} bytes this path accepts`));
    kept.push(piece);
    raw.pause();
    wake();
  });
  raw.once('end', wake);
  raw.once('error', fail);
  raw.once('close', () => {
    if (!raw.complete) fail(new Error('the client left before its body was whole'));
  });
  raw.pause();

  return {
    bytes: null,
    async *read() {
      readers += 1;
      const mine = readers;
      for (reached = 0; mine === readers; ) {
        if (fault !== null) throw fault;
        const piece = kept[reached];
        if (piece !== undefined) {
          if (mode === 'taken') kept[reached] = null;
          reached += 1;
          if (piece !== null) yield piece;
        } else if (raw.readableEnded) return;
        else {
          const more = new Promise<void>((resolve) => void waiting.add(resolve));
          raw.resume();
          await more;
        }
      }
    },
    taken() {
      mode = 'taken';
      kept.fill(null, 0, reached);
    },
    discard() {
      mode = 'discarded';
      kept.length = 0;
      fail(new Error('the body is not wanted any more'));
      raw.resume();
    },
  };
}

/** One that has been read. */
export function wholeBody(bytes: Buffer): HeldBody {
  return {
    bytes: bytes.byteLength,
    async *read() {
      yield bytes;
    },
    taken: () => {},
    discard: () => {},
  };
}
