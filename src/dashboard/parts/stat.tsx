// One figure with its name, and what there is to say about it.
import type { ComponentChildren } from 'preact';
import { exactUsd } from '../format/usd.ts';

const LEADING_DIGITS = 4;

/** A row of figures; `warnings` about them come below, outside of the list, which may hold names and values only. */
export function Stats(props: {
  readonly children: ComponentChildren;
  readonly busy?: boolean;
  readonly warnings?: readonly string[];
}) {
  return (
    <div class="stats-panel">
      <dl class="stats" aria-busy={props.busy ?? false}>
        {props.children}
      </dl>
      {props.warnings?.map((warning) => (
        <p class="stat-warning" key={warning}>
          {warning}
        </p>
      ))}
    </div>
  );
}

export function Stat(props: {
  readonly name: string;
  readonly children: ComponentChildren;
  readonly note?: ComponentChildren;
}) {
  return (
    <div class="stat">
      <dt>{props.name}</dt>
      <dd class="stat-figure number">{props.children}</dd>
      {props.note !== undefined && <dd class="stat-note">{props.note}</dd>}
    </div>
  );
}

/** Every digit of an amount: those after the fourth stand back. */
export function ExactFigure({ usd }: { readonly usd: string }) {
  const text = exactUsd(usd);
  const at = text.indexOf('.') + LEADING_DIGITS + 1;
  return (
    <span class="exact">
      {text.slice(0, at)}
      {text.length > at && <span class="digits">{text.slice(at)}</span>}
    </span>
  );
}
