// Parses Markdown within a time limit: short, plain text at once, anything else in a worker that is ended when it takes too long.
import { marked, type Token } from 'marked';

/** Longer text is shown as it is: parsing it anew with every word would hold up the page. */
const MAX_LENGTH = 100_000;
/** At most 30 ms of processor time were measured for text within these three limits, seconds for text beyond. */
const MAX_PLAIN_LENGTH = 20_000;
const MAX_PLAIN_DELIMITERS = 600;
const LONG_BLANK = /[ \t]{100}/;
/** Only the clock can be read: on a busy machine it runs out for any text. So a text is tried again, after all others. */
const LIMITS_MS = [500, 5000] as const;
/** For the worker's file to be loaded. */
const START_MS = 10_000;
/** Parsed texts that are kept: those of a page of messages, so that a view that is opened again does not flicker. */
const MAX_KEPT = 200;

/** Null means that the text is shown unparsed: it is too long, too slow, or the parser failed. */
export type Parsed = readonly Token[] | null;

/** The tokens of `text`, or a promise of them where the worker has to parse it. */
export function parseMarkdown(text: string): Parsed | Promise<Parsed> {
  if (text.length > MAX_LENGTH) return null;
  if (isPlain(text)) return tokenize(text);
  if (kept.has(text)) return kept.get(text) ?? null;
  return parseInWorker(text);
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
  /** How often it took too long. */
  tries: number;
  /** The text is no longer shown, so its result is not needed. */
  isAbandoned: boolean;
}

interface RunningWorker {
  readonly thread: Worker;
  isLoaded: boolean;
}

const kept = new Map<string, Parsed>();
const pending = new WeakMap<Promise<Parsed>, Waiting>();
let waiting: Waiting[] = [];
let worker: RunningWorker | null = null;
let current: Waiting | null = null;
let timer: ReturnType<typeof setTimeout> | undefined;

function parseInWorker(text: string): Promise<Parsed> {
  let resolvePromise: Waiting['resolve'] = () => {};
  const promise = new Promise<Parsed>((settled) => {
    resolvePromise = settled;
  });
  const entry = { text, resolve: resolvePromise, tries: 0, isAbandoned: false };
  pending.set(promise, entry);
  waiting.push(entry);
  startNext();
  return promise;
}

/** Of a text that is not shown any more: it is not begun with, or not again. */
export function abandonParse(parsed: Promise<Parsed>): void {
  const entry = pending.get(parsed);
  if (entry === undefined) return;
  entry.isAbandoned = true;
  waiting = waiting.filter((each) => each !== entry);
}

function startNext(): void {
  if (current !== null) return;
  for (;;) {
    current = waiting.shift() ?? null;
    if (current === null) return;
    const known = kept.get(current.text);
    if (known === undefined) break;
    current.resolve(known);
  }
  worker ??= startWorker();
  if (worker.isLoaded) parseCurrent();
  else timer = setTimeout(failStart, START_MS);
}

/** In a worker that is loaded: the time that this takes is not the text's. */
function parseCurrent(): void {
  if (current === null) return;
  clearTimeout(timer);
  timer = setTimeout(giveUp, LIMITS_MS[current.tries]);
  worker?.thread.postMessage(current.text);
}

function startWorker(): RunningWorker {
  const thread = new Worker(document.documentElement.dataset.markdownWorker ?? '', { type: 'module' });
  const started = { thread, isLoaded: false };
  thread.onmessage = ({ data }: MessageEvent<Parsed | 'loaded'>) => {
    if (worker !== started) return;
    if (data === 'loaded') {
      started.isLoaded = true;
      parseCurrent();
    } else settleCurrent(data);
  };
  thread.onerror = () => {
    if (worker === started) failStart();
  };
  return started;
}

/** Its file cannot be loaded, as after an update of the server: text stays as it is. */
function failStart(): void {
  endWorker();
  settleCurrent(null);
}

function giveUp(): void {
  endWorker();
  if (current === null) return;
  current.tries += 1;
  if (current.tries === LIMITS_MS.length) {
    settleCurrent(null);
    return;
  }
  if (!current.isAbandoned) waiting.push(current);
  current = null;
  startNext();
}

function endWorker(): void {
  worker?.thread.terminate();
  worker = null;
}

function settleCurrent(parsed: Parsed): void {
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
