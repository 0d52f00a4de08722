// A text of any length, of which so much is drawn as a page can bear, and more when one asks for it.
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { shortCount } from '../format/number.ts';

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
        <span class="quiet">{shortCount(text.length - end)} more characters are not shown.</span>{' '}
        <button type="button" class="button ghost" onClick={() => setEnd(end + STEP)}>
          Show {text.length - end > STEP ? `${shortCount(STEP)} more` : 'all'}
        </button>
      </p>
    </>
  );
}
