// Draws a session tree in place: one line a session, repainted as it changes. On a terminal only.
import { fromPusd } from '../kernel/money.ts';
import type { SessionTree, TreeNode } from './session-tree.ts';
import { grouped, padded, type Style } from './style.ts';

export interface Screen {
  write(text: string): unknown;
  /** Width in characters; asked at every repaint. */
  readonly columns?: number | undefined;
}

const SPINNER = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
const REPAINT_MS = 80;
const DEFAULT_COLUMNS = 80;
const HIDE_CURSOR = '\x1b[?25l';
const SHOW_CURSOR = '\x1b[?25h';
const CLEAR_TO_END = '\x1b[J';

/** Starts drawing; `stop()` paints the last state, without a spinner, and leaves it on the screen. */
export function startLiveTree(tree: SessionTree, screen: Screen, style: Style): { stop(): void } {
  let frame = 0;
  let painted = 0;
  const paint = (spinning: boolean) => {
    const lines = tree.nodes.map((node) =>
      nodeLine(node, {
        width: (screen.columns ?? DEFAULT_COLUMNS) - 1,
        spinner: spinning ? SPINNER[frame % SPINNER.length]! : '·',
        style,
      }),
    );
    const up = painted > 0 ? `\x1b[${painted}A` : '';
    screen.write(`${up}\r${CLEAR_TO_END}${lines.join('\n')}\n`);
    painted = lines.length;
    frame++;
  };
  screen.write(HIDE_CURSOR);
  paint(true);
  const timer = setInterval(() => paint(true), REPAINT_MS);
  return {
    stop() {
      clearInterval(timer);
      paint(false);
      screen.write(SHOW_CURSOR);
    },
  };
}

/** One session on one line of at most `width` characters. */
export function nodeLine(
  node: TreeNode,
  options: { readonly width: number; readonly spinner: string; readonly style: Style },
): string {
  const { style, width } = options;
  const wide = width >= 72;
  const label = padded(`${'  '.repeat(node.depth)}${node.label}`, 14);
  const model = wide ? ` ${padded(node.model, 16)}` : '';
  const tokens = wide
    ? ` ${padded(`${grouped(node.input_tokens)}↑ ${grouped(node.output_tokens)}↓`, 14, 'right')}`
    : '';
  const cost = padded(node.input_tokens === 0 ? '' : `$${roundedUsd(node.cost)}`, 9, 'right');
  const doing = padded(
    node.doing,
    Math.max(0, width - 2 - label.length - model.length - tokens.length - cost.length - 2),
  );
  const mark =
    node.state === 'completed'
      ? style.green('✓')
      : node.state === 'failed' || node.state === 'cancelled'
        ? style.red('✗')
        : style.cyan(node.state === 'running' ? options.spinner : '·');
  return `${mark} ${style.bold(label)}${style.dim(model)} ${doing}${style.dim(tokens)} ${cost}`;
}

/** Four decimal places for a glance; the table has all of them. Half up, in integers. */
export function roundedUsd(pusd: bigint): string {
  const unit = 100_000_000n;
  const rounded = ((pusd + unit / 2n) / unit) * unit;
  const text = fromPusd(rounded);
  const [whole, fraction = ''] = text.split('.');
  return `${whole}.${fraction.padEnd(4, '0')}`;
}
