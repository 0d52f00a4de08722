// A running session tree: drawn in place on a terminal, else a line for each step.

import type { StreamEvent } from '#client/client.ts';
import { type Clock, systemClock } from '#protocol/clock.ts';
import { formatShortCount } from '#protocol/text/short-count.ts';
import { toPrintable } from './printable-text.ts';
import type { SessionTree, TreeNode } from './session-tree.ts';
import {
  countColumns,
  formatAge,
  formatCost,
  formatRoundedDollars,
  nameWorkers,
  pad,
  type Style,
  type TextOutput,
} from './terminal.ts';

interface Screen {
  write(text: string): unknown;
  /** Width and height in characters; asked at every repaint. */
  readonly columns?: number | undefined;
  readonly rows?: number | undefined;
}

interface LiveTree {
  /** Writes lines above the tree. */
  say(text: string): void;
  /** Takes the tree away, so that something else can be written, until the returned function is called. */
  hold(): () => void;
  /** Paints the last state, without a spinner, and leaves it on the screen. */
  stop(): void;
}

const SPINNER = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
const REPAINT_MS = 80;
const DEFAULT_COLUMNS = 80;
const DEFAULT_ROWS = 24;
const HIDE_CURSOR = '\x1b[?25l';
/** What a process that ends at once owes the terminal. */
export const SHOW_CURSOR = '\x1b[?25h';
const CLEAR_TO_END = '\x1b[J';

/** Starts drawing. `note` is a line below the tree, none where it is empty. */
export function startLiveTree(
  tree: SessionTree,
  screen: Screen,
  style: Style,
  { note = () => '', clock = systemClock }: { readonly note?: () => string; readonly clock?: Clock } = {},
): LiveTree {
  let frame = 0;
  let painted = 0;
  let held = 0;
  const clear = () => {
    const lines = painted;
    painted = 0;
    if (lines === 0) return `\r${CLEAR_TO_END}`;
    return `\x1b[${lines}A\r${CLEAR_TO_END}`;
  };
  const paint = (spinning: boolean) => {
    const width = (screen.columns || DEFAULT_COLUMNS) - 1;
    let below = '';
    let spinner = '·';
    if (spinning) {
      below = toPrintable(note());
      spinner = SPINNER[frame % SPINNER.length]!;
    }
    const lines = drawTree(tree.nodes, {
      width,
      // One line for the cursor, and lines above the top cannot be painted again.
      height: (screen.rows || DEFAULT_ROWS) - 1 - Number(below !== ''),
      now: clock.now(),
      spinner,
      style,
    });
    if (below !== '') lines.push(style.dim(pad(`  ${below}`, width).trimEnd()));
    screen.write(`${clear()}${lines.join('\n')}\n`);
    painted = lines.length;
    frame++;
  };
  screen.write(HIDE_CURSOR);
  paint(true);
  const timer = setInterval(() => {
    if (held === 0) paint(true);
  }, REPAINT_MS);
  return {
    say(text) {
      screen.write(`${clear()}${text}\n`);
      if (held === 0) paint(true);
    },
    hold() {
      if (held++ === 0) screen.write(`${clear()}${SHOW_CURSOR}`);
      return () => {
        if (--held > 0) return;
        screen.write(HIDE_CURSOR);
        paint(true);
      };
    },
    stop() {
      clearInterval(timer);
      paint(false);
      screen.write(SHOW_CURSOR);
    },
  };
}

interface View {
  /** Columns a line may take. */
  readonly width: number;
  /** Lines there is room for. */
  readonly height: number;
  readonly now: number;
  readonly spinner: string;
  readonly style: Style;
}

/** Narrower than this there is no room for the model, and then for the tokens. */
const MODEL_FROM = 64;
const TOKENS_FROM = 48;
const MIN_DOING = 14;
const MIN_MODEL = 10;

/** One line a session, of at most `width` columns each; where they are too many the ended ones are counted in the last. */
export function drawTree(nodes: readonly TreeNode[], view: View): string[] {
  const { width, height } = view;
  const shown = new Set(nodes);
  const hidden: TreeNode[] = [];
  const inOrder = [...nodes.filter((node) => node.ended_at !== null), ...nodes.filter((n) => n.ended_at === null)];
  for (const node of inOrder) {
    if (shown.size + Math.min(hidden.length, 1) <= Math.max(2, height)) break;
    if (node.depth === 0) continue;
    shown.delete(node);
    hidden.push(node);
  }
  const rows = nodes.filter((node) => shown.has(node)).map((node) => ({ node, ...composeTreeCells(node, view.now) }));
  const most = (cell: (row: (typeof rows)[number]) => string) =>
    Math.max(...rows.map((row) => countColumns(cell(row))));
  const widths = {
    label: Math.min(
      most(({ label }) => label),
      Math.floor(width / 3),
    ),
    tokens: width < TOKENS_FROM ? 0 : most(({ tokens }) => tokens),
    cost: most(({ cost }) => cost),
    time: most(({ time }) => time),
  };
  const gaps = [widths.tokens, widths.cost, widths.time].filter((cell) => cell > 0).length + 1;
  const free = width - 2 - widths.label - widths.tokens - widths.cost - widths.time - gaps;
  let model = 0;
  if (width >= MODEL_FROM) {
    const room =
      free -
      1 -
      Math.max(
        MIN_DOING,
        most(({ doing }) => doing),
      );
    model = Math.min(
      most((row) => row.model),
      Math.max(MIN_MODEL, room),
    );
  }
  let doing = Math.max(0, free);
  if (model > 0) doing = Math.max(0, free - model - 1);
  const lines = rows.map((row) => drawTreeLine(row, { ...widths, model, doing }, view));
  if (hidden.length > 0) lines.push(view.style.dim(pad(summarizeHidden(hidden), width).trimEnd()));
  return lines;
}

interface Cells {
  readonly label: string;
  readonly model: string;
  readonly doing: string;
  readonly tokens: string;
  readonly cost: string;
  readonly time: string;
}

function composeTreeCells(node: TreeNode, now: number): Cells {
  const cells = {
    label: `${'  '.repeat(node.depth)}${node.label}`,
    model: toPrintable(node.model),
    doing: toPrintable(node.doing),
    tokens: '',
    cost: '',
    time: '',
  };
  if (node.started_at !== null) cells.time = formatAge((node.ended_at ?? now) - node.started_at);
  if (node.input_tokens + node.output_tokens === 0) return cells;
  cells.tokens = `${formatShortCount(node.input_tokens)}↑ ${formatShortCount(node.output_tokens)}↓`;
  cells.cost = formatCost(formatRoundedDollars(node.cost), { all: node.calls, unpriced: node.unpriced_calls });
  return cells;
}

function drawTreeLine(
  row: Cells & { readonly node: TreeNode },
  widths: Readonly<Record<keyof Cells, number>>,
  { width, spinner, style }: View,
): string {
  const { node } = row;
  const cell = (name: keyof Cells, align: 'left' | 'right' = 'left') => {
    if (widths[name] <= 0) return '';
    const text = pad(row[name], widths[name], align);
    if (name === 'label') return text;
    return ` ${text}`;
  };
  if (width < 2 + widths.label + widths.cost + widths.time + 2) return pad(`${row.label} ${row.doing}`, width);
  return (
    `${chooseMark(node, spinner, style)} ${style.bold(cell('label'))}${style.dim(cell('model'))}${cell('doing')}` +
    `${style.dim(cell('tokens', 'right'))}${cell('cost', 'right')}${style.dim(cell('time', 'right'))}`
  );
}

function chooseMark({ state, asks }: TreeNode, spinner: string, style: Style): string {
  if (state === 'completed') return style.green('✓');
  if (state === 'failed' || state === 'cancelled') return style.red('✗');
  if (asks.size > 0) return style.yellow('?');
  if (state === 'running') return style.cyan(spinner);
  return style.cyan('·');
}

function summarizeHidden(hidden: readonly TreeNode[]): string {
  const ended = hidden.filter((node) => node.ended_at !== null).length;
  const parts: string[] = [];
  if (ended > 0) parts.push(`${ended} ended`);
  if (ended < hidden.length) parts.push(`${hidden.length - ended} at work`);
  const cost = formatRoundedDollars(hidden.reduce((sum, node) => sum + node.cost, 0n));
  return `  and ${hidden.length} more ${nameWorkers(hidden.length)}: ${parts.join(', ')}, ${cost}`;
}

export interface Watch extends LiveTree {
  /** Every event of the tree, in order. */
  apply(event: StreamEvent): void;
}

/** The label of a planner or of a worker without a name; a longer one stands as it is. */
const LABEL_WIDTH = 9;

/** `note` is shown below the painted tree, where it is not empty. */
export function startWatch(tree: SessionTree, output: TextOutput, style: Style, note?: () => string): Watch {
  if (output.isTTY === true) {
    const live = startLiveTree(tree, output, style, note && { note });
    return {
      ...live,
      apply(event) {
        const line = tree.apply(event);
        // The next attempt takes its place in the tree at once.
        if (event.type === 'delegate.checked' && line !== null) live.say(toPrintable(line));
      },
    };
  }
  return {
    apply(event) {
      const line = tree.apply(event);
      const label = tree.nodes.find((node) => node.session_id === event.session_id)?.label ?? '';
      if (line !== null) output.write(`${label.padEnd(LABEL_WIDTH)} ${toPrintable(line)}\n`);
    },
    say: (text) => output.write(`${text}\n`),
    hold: () => () => {},
    stop() {},
  };
}
