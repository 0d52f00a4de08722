// Approvals asked at the terminal: what a tool would do, exactly, until when, and yes or no (09 §6, 17 §2).

import readline from 'node:readline/promises';
import { ApiError, type ConfirmationDetail, type MetisClient } from '#client/client.ts';
import { type Clock, sleep, systemClock } from '#protocol/clock.ts';
import { readErrorMessage } from '#protocol/text/error-message.ts';
import { toPrintable } from './printable-text.ts';
import { formatAge, formatDollars, printMessage, type Style, splitByWidth, type TextOutput } from './terminal.ts';

export interface Desk {
  readonly client: MetisClient;
  readonly input: NodeJS.ReadStream;
  readonly output: TextOutput & NodeJS.WritableStream;
  readonly style: Style;
  readonly clock?: Clock;
  /** Who asks, in a word: `planner`, `worker 2`. */
  readonly who: (sessionId: string) => string;
  /** Clears the screen for a question; the returned function ends that. */
  readonly hold: () => () => void;
  /** Ctrl-C while a question stands: the terminal sends no signal then. */
  readonly interrupt: () => void;
}

export interface Approvals {
  add(confirmationId: string): void;
  /** Answered here or elsewhere, expired or not wanted any more. */
  withdraw(confirmationId: string): void;
  /** Takes back the question that stands. */
  close(): Promise<void>;
}

/** What was typed before the question could be read is no answer to it. */
const TYPED_AHEAD_MS = 50;
const DEFAULT_COLUMNS = 80;

/** Asks one after the other, oldest first. */
export function createApprovals(desk: Desk): Approvals {
  const waiting: string[] = [];
  let asked: { readonly id: string; readonly over: AbortController } | null = null;
  let working: Promise<void> | null = null;

  async function work(): Promise<void> {
    for (let id = waiting.shift(); id !== undefined; id = waiting.shift()) {
      const over = new AbortController();
      asked = { id, over };
      const release = desk.hold();
      try {
        await settleApproval(desk, id, over.signal);
      } finally {
        asked = null;
        release();
      }
    }
    working = null;
  }

  return {
    add(id) {
      waiting.push(id);
      working ??= work();
    },
    withdraw(id) {
      const at = waiting.indexOf(id);
      if (at >= 0) waiting.splice(at, 1);
      if (asked?.id === id) asked.over.abort();
    },
    async close() {
      waiting.length = 0;
      asked?.over.abort();
      await working;
    },
  };
}

/** Asks until the server has an answer. Never throws: a question that cannot be asked ends by its deadline. */
async function settleApproval(desk: Desk, id: string, over: AbortSignal): Promise<void> {
  const { client, output } = desk;
  try {
    const question = await client.getConfirmation(id, { signal: over });
    // Answered by a rule or another client before it could be shown.
    if (question.decision !== null) return;
    output.write(`${formatQuestion(desk, question).join('\n')}\n`);
    while (!over.aborted) {
      const answer = await askPerson(desk, over, question.kind === 'delegations');
      try {
        await client.answerConfirmation(id, answer);
        return;
      } catch (error) {
        if (error instanceof ApiError && error.code === 'invalid_modified_input') {
          printMessage(output, error.message);
          continue;
        }
        if (error instanceof ApiError && error.status < 500) throw error;
        output.write(`The answer did not reach the server; once more.\n`);
      }
    }
  } catch (error) {
    if (over.aborted) output.write('\n(no answer is needed any more)\n');
    else printMessage(output, readErrorMessage(error));
  }
}

type Answer =
  | { readonly decision: 'approve' }
  | { readonly decision: 'modify'; readonly modified_input: Readonly<Record<string, unknown>> }
  | { readonly decision: 'reject'; readonly reason: string | null };

/** Throws when `over` is aborted while it waits. */
async function askPerson(
  { input, output, clock = systemClock, interrupt }: Desk,
  over: AbortSignal,
  isBill: boolean,
): Promise<Answer> {
  const discard = () => {};
  input.on('data', discard);
  input.resume();
  await sleep(clock, TYPED_AHEAD_MS, over);
  input.off('data', discard);
  const lines = readline.createInterface({ input, output, terminal: true });
  const gone = new AbortController();
  lines.on('SIGINT', interrupt);
  lines.on('close', () => gone.abort());
  try {
    for (;;) {
      const text = await lines.question(isBill ? BILL_QUESTION : 'approve? yes, no, or no and why: ', {
        signal: AbortSignal.any([over, gone.signal]),
      });
      const answer = parseAnswer(text);
      if (answer !== null) return answer;
      const edit = isBill ? parseBillEdit(text) : null;
      if (edit !== null) return { decision: 'modify', modified_input: edit };
    }
  } catch (error) {
    if (over.aborted) throw error;
    // A closed terminal gives no answer.
    return { decision: 'reject', reason: 'the terminal is closed' };
  } finally {
    lines.close();
    input.pause();
  }
}

/** Null for what is neither yes nor no. */
export function parseAnswer(text: string): Answer | null {
  const [, word = '', rest = ''] = /^\s*(\S*)\s*(.*?)\s*$/s.exec(text) ?? [];
  const answer = word.toLowerCase().replace(/[,.:;]$/, '');
  if (['y', 'yes', 'a', 'approve'].includes(answer) && rest === '') return { decision: 'approve' };
  if (!['n', 'no', 'r', 'reject'].includes(answer)) return null;
  if (rest === '') return { decision: 'reject', reason: null };
  return { decision: 'reject', reason: rest.slice(0, MAX_REASON) };
}
const MAX_REASON = 500;

function formatQuestion(desk: Desk, question: ConfirmationDetail): string[] {
  const { style, output, who, clock = systemClock } = desk;
  const width = (output.columns || DEFAULT_COLUMNS) - 1;
  const left = formatAge(Date.parse(question.expires_at) - clock.now());
  const by = toPrintable(question.expires_at).slice(11, 19);
  const head = toPrintable(
    question.kind === 'delegations'
      ? `${who(question.session_id)} asks for approval of ${countDelegations(question.tool_use_ids.length)}`
      : `${who(question.session_id)} asks for approval: ${question.tool_name} (${question.side_effects})`,
  );
  return [
    '',
    ...splitByWidth(head, width).map((line) => style.bold(style.yellow(line))),
    ...(question.kind === 'delegations' ? formatBill(question) : formatInput(question.input, width)),
    style.dim(`Without an answer it is denied in ${left}, at ${by} UTC.`),
  ];
}

/**
 * The whole input, each line behind a bar, a broken one behind a dotted one. Texts of several lines stand as they are;
 * what a terminal would not show as it is, is escaped.
 */
export function formatInput(input: Readonly<Record<string, unknown>>, width: number): string[] {
  return Object.entries(input).flatMap(([name, value]) =>
    formatField(escapeControls(name), value).flatMap((line) => {
      const [first = '', ...rest] = splitByWidth(line, width - 4);
      return [`  │ ${first}`, ...rest.map((part) => `  ┊ ${part}`)];
    }),
  );
}

function formatField(name: string, value: unknown): string[] {
  let text = JSON.stringify(value, null, 2) ?? '';
  if (typeof value === 'string') text = value;
  const lines = text.split('\n').map(escapeControls);
  if (lines.length > 1) return [`${name}:`, ...lines.map((line) => `  ${line}`)];
  return [`${name}: ${lines[0]}`];
}

/** Control and format characters by their code; a joiner within an emoji stays. */
function escapeControls(text: string): string {
  return text.replace(/(?!\u200d)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (char) => `\\u{${char.codePointAt(0)!.toString(16)}}`);
}

// The bill of the delegations of one message: a table, and the answers that it takes (21 §1).

interface BillLine {
  readonly worker: string | null;
  readonly tier: string | null;
  readonly model: string;
  readonly effort: string | null;
  readonly p50_usd: string | null;
  readonly p90_usd: string | null;
  readonly ceiling_usd: string | null;
}

function countDelegations(count: number): string {
  return count === 1 ? 'a delegation before it starts' : `${count} delegations before the first starts`;
}

/** One line a delegation, and their sum. */
function formatBill({ input }: Pick<ConfirmationDetail, 'input'>): string[] {
  const rows = input.rows as readonly BillLine[];
  const lines = rows.map((row, index) => {
    const model = row.effort === null ? row.model : `${row.model}:${row.effort}`;
    const cost =
      row.p90_usd === null
        ? `first call at most ${formatDollars(row.ceiling_usd ?? '0')}`
        : `p50 ${formatDollars(row.p50_usd ?? '0')}, p90 ${formatDollars(row.p90_usd)}`;
    return toPrintable(`  │ ${index + 1}  ${row.worker ?? row.tier ?? 'worker'}  ${model}  ${cost}`);
  });
  const isPart = rows.some(({ p90_usd }) => p90_usd === null);
  const sum = `together up to ${formatDollars(String(input.compared_usd))}`;
  return [...lines, `  │ ${sum}${isPart ? ', without what follows a first call' : ''}`];
}

const BILL_QUESTION = 'start them? yes, no, no and why, or a change (first 2, tier fast, effort low): ';

/** Null for what is no list of changes. */
export function parseBillEdit(text: string): Readonly<Record<string, unknown>> | null {
  const words = text
    .trim()
    .toLowerCase()
    .split(/[\s,]+/);
  if (words.length < 2 || words.length % 2 === 1) return null;
  const edit: Record<string, unknown> = {};
  for (let at = 0; at < words.length; at += 2) {
    const [name = '', value = ''] = words.slice(at, at + 2);
    if (name === 'first' && /^[1-9]\d{0,3}$/.test(value)) edit.first = Number(value);
    else if (name === 'tier' || name === 'effort') edit[name] = value;
    else return null;
  }
  return edit;
}
