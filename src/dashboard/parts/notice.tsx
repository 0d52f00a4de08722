// What stands where content would: a skeleton, an empty state that says what to do, an error that says what happened.
import type { ComponentChildren } from 'preact';
import { explain } from '../data/api.ts';
import { Icon, type IconName } from './icon.tsx';

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
        <strong>{props.title ?? 'That did not work'}</strong>
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
