// Parses Markdown within a time limit: short, plain text at once, anything else in a worker that is ended when it takes too long.
import { marked, type Token } from 'marked';

/** Longer text is shown as it is: parsing it anew with every word would hold up the page. */
const MAX_LENGTH = 100_000;
/** At most 30 ms of processor time were measured for text within these three limits, seconds for text beyond. */
const MAX_PLAIN_LENGTH = 20_000;
const MAX_PLAIN_DELIMITERS = 600;
const LONG_BLANK = /[ \t]{100}/;
const LIMIT_MS = 500;
/** Parsed texts that are kept: those of a page of messages, so that a view that is opened again does not flicker. */
const MAX_KEPT = 200;

/** Null stands for text that is shown as it is: too long, too slow, or refused by the parser. */
export type Parsed = readonly Token[] | null;

/** The tokens of `text`, or a promise of them where the worker has to parse it. */
export function parseMarkdown(text: string): Parsed | Promise<Parsed> {
  if (text.length > MAX_LENGTH) return null;
  if (isPlain(text)) return tokenize(text);
  return kept.has(text) ? (kept.get(text) ?? null) : parseInWorker(text);
}

/** Throws nothing: the parser recurses, and deep nesting ends its stack. */
export function tokenize(text: string): Parsed {
  try {
    return marked.lexer(text, { gfm: true, breaks: true });
  } catch {
    return null;
  }
}

/** The parser takes time that grows with the square of the delimiters and of blanks in a row. */
function isPlain(text: string): boolean {
  if (text.length > MAX_PLAIN_LENGTH || LONG_BLANK.test(text)) return false;
  return (text.match(/[*_~`[<!>]/g)?.length ?? 0) <= MAX_PLAIN_DELIMITERS;
}

interface Waiting {
  readonly text: string;
  readonly resolve: (parsed: Parsed) => void;
}

const kept = new Map<string, Parsed>();
const waiting: Waiting[] = [];
let worker: Worker | null = null;
let current: Waiting | null = null;
let timer: ReturnType<typeof setTimeout> | undefined;

function parseInWorker(text: string): Promise<Parsed> {
  return new Promise((resolve) => {
    waiting.push({ text, resolve });
    startNext();
  });
}

function startNext(): void {
  if (current !== null) return;
  current = waiting.shift() ?? null;
  if (current === null) return;
  worker ??= startWorker();
  timer = setTimeout(() => {
    worker?.terminate();
    worker = null;
    settle(null);
  }, LIMIT_MS);
  worker.postMessage(current.text);
}

function startWorker(): Worker {
  const started = new Worker(document.documentElement.dataset.markdownWorker ?? '', { type: 'module' });
  started.onmessage = ({ data }: MessageEvent<Parsed>) => {
    if (worker === started) settle(data);
  };
  // The file cannot be loaded, as after an update of the server: text stays as it is.
  started.onerror = () => {
    started.terminate();
    worker = null;
    settle(null);
  };
  return started;
}

function settle(parsed: Parsed): void {
  clearTimeout(timer);
  const settled = current;
  current = null;
  if (settled !== null) {
    kept.set(settled.text, parsed);
    if (kept.size > MAX_KEPT) kept.delete(kept.keys().next().value ?? '');
    settled.resolve(parsed);
  }
  startNext();
}
