// Replacements for missing content: a skeleton, an empty state with the next step, an error with its reason.
import type { ComponentChildren } from 'preact';
import { useId, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { formatShortCount } from '#protocol/text/short-count.ts';
import { explain, listIssues } from '../data/api.ts';
import { useRequest } from '../data/use-request.ts';
import { centsUsd, exactUsd } from '../format/format.ts';
import { Icon, type IconName } from './labels.tsx';

/** Lines of the size of what is to come, so that nothing jumps. */
export function Skeleton({ rows = 3, height = 44 }: { readonly rows?: number; readonly height?: number }) {
  return (
    <div class="skeleton" role="status" aria-label="Loading">
      {Array.from({ length: rows }, (_, i) => (
        // Rows of a skeleton have no identity but their place.
        <div key={`row ${i + 1}`} class="skeleton-row" style={{ height: `${height}px` }}>
          <span style={{ width: `${[62, 48, 71, 55][i % 4]}%` }} />
        </div>
      ))}
    </div>
  );
}

export function Empty(props: {
  readonly icon: IconName;
  readonly title: string;
  readonly children?: ComponentChildren;
}) {
  return (
    <div class="empty">
      <Icon name={props.icon} />
      <h2>{props.title}</h2>
      {props.children}
    </div>
  );
}

/** Why a request of a form failed; nothing when it did not. */
export function RequestError({ error }: { readonly error: unknown }) {
  if (error === null) return null;
  return (
    <p class="field-error" role="alert">
      {explain(error)}
    </p>
  );
}

/** A failure with a way to try again. */
export function Failure(props: {
  readonly error: unknown;
  readonly title?: string;
  readonly retry?: (() => void) | undefined;
}) {
  return (
    <div class="failure" role="alert">
      <Icon name="alert" />
      <div>
        <strong>{props.title ?? 'The request failed'}</strong>
        <p>{explain(props.error)}</p>
      </div>
      {props.retry && (
        <button type="button" class="button" onClick={props.retry}>
          Try again
        </button>
      )}
    </div>
  );
}

// One figure with its name, and what there is to say about it.

/** A row of figures; `warnings` about them come below, outside of the list, which may hold names and values only. */
export function Stats(props: {
  readonly children: ComponentChildren;
  readonly busy?: boolean;
  readonly note?: ComponentChildren;
  readonly warnings?: readonly string[];
}) {
  return (
    <div class="stats-panel">
      <dl class="stats" aria-busy={props.busy ?? false}>
        {props.children}
      </dl>
      {props.note}
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

/** An amount to the cent, with every digit on hover. */
export function Figure({ usd }: { readonly usd: string }) {
  return <span title={exactUsd(usd)}>{centsUsd(usd)}</span>;
}

// A dialog over the page: the platform's own, which holds the focus and closes on Escape.

export function Dialog(props: {
  readonly title: string;
  readonly onClose: () => void;
  readonly children: ComponentChildren;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const heading = useId();
  // Before the next key arrives, which an effect after the paint would miss.
  useLayoutEffect(() => {
    const shown = dialog.current;
    const before = document.activeElement;
    shown?.showModal();
    return () => {
      shown?.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog ref={dialog} class="dialog" aria-labelledby={heading} onClose={props.onClose}>
      <header>
        <h2 id={heading}>{props.title}</h2>
        <button type="button" class="button ghost icon-only" aria-label="Close" onClick={props.onClose}>
          <Icon name="close" />
        </button>
      </header>
      {props.children}
    </dialog>
  );
}

/** Asks before it acts; a refusal is shown in place. `onClose` is given whether it was done. */
export function ConfirmDialog(props: {
  readonly title: string;
  readonly word: string;
  readonly text: string;
  readonly act: () => Promise<unknown>;
  readonly onClose: (done: boolean) => void;
}) {
  const { busy, error, send } = useRequest();
  const confirm = async () => {
    const isDone = await send(props.act);
    if (isDone) props.onClose(true);
  };
  return (
    <Dialog title={props.title} onClose={() => props.onClose(false)}>
      <div class="dialog-body">
        <p>{props.text}</p>
        {error !== null && (
          <div class="field-error" role="alert">
            <p>{explain(error)}</p>
            {listIssues(error).map(({ path, message }) => (
              <p key={`${path} ${message}`}>
                <code>{path}</code> {message}
              </p>
            ))}
          </div>
        )}
        <div class="dialog-actions">
          <button type="button" class="button" onClick={() => props.onClose(false)}>
            Cancel
          </button>
          <button type="button" class="button primary" disabled={busy} onClick={confirm}>
            {props.word}
          </button>
        </div>
      </div>
    </Dialog>
  );
}

// The name of a row that opens what lies under it.

export function Unfold(props: { readonly name: string; readonly open: boolean; readonly onToggle: () => void }) {
  return (
    <button type="button" class="unfold" aria-expanded={props.open} title={props.name} onClick={props.onToggle}>
      <Icon name="chevron" />
      <span>{props.name}</span>
    </button>
  );
}

// A text of any length, of which so much is drawn as a page can bear, and more when one asks for it.

/** Characters that are drawn at first, and more with each asking: laying out megabytes would hold up the page. */
const STEP = 50_000;

export function Clipped(props: {
  readonly text: string;
  /** How many are drawn at first. */
  readonly first?: number;
  readonly children: (shown: string) => ComponentChildren;
}) {
  const { text, first = STEP } = props;
  const [end, setEnd] = useState(first);
  if (text.length <= end) return <>{props.children(text)}</>;
  return (
    <>
      {props.children(text.slice(0, end))}
      <p class="clipped">
        <span class="quiet">{formatShortCount(text.length - end)} more characters are not shown.</span>{' '}
        <button type="button" class="button ghost" onClick={() => setEnd(end + STEP)}>
          Show {text.length - end > STEP ? `${formatShortCount(STEP)} more` : 'all'}
        </button>
      </p>
    </>
  );
}
