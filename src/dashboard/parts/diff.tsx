// A change of a text as lines that go and come.
import { diffArrays } from 'diff';
import { visible } from '../format/format.ts';

/** Texts that differ by more lines are shown as all gone and all come: finding out how would hold the page. */
const MOST_EDITS = 2000;
const SIGNS = { '-': 'diff-out', '+': 'diff-in', ' ': 'diff-same' } as const;

interface Line {
  readonly sign: keyof typeof SIGNS;
  readonly text: string;
}

/** `name` is the accessible name, `head` is the visible heading. A figure and no region: a page may have many. */
export function Diff(props: {
  readonly name: string;
  readonly head: string;
  /** Null where there was nothing before: every line is new. */
  readonly old: string | null;
  readonly fresh: string;
}) {
  const lines = compareLines(splitLines(props.old), splitLines(props.fresh));
  return (
    <figure class="code-block diff" aria-label={props.name} tabIndex={0}>
      <pre>
        <code>
          <span class="diff-file">{visible(props.head)}</span>
          {lines.map(({ sign, text }, at) => (
            <span key={`${at} ${sign}`} class={SIGNS[sign]}>
              {sign} {visible(text)}
            </span>
          ))}
        </code>
      </pre>
    </figure>
  );
}

/** A line break at the end begins no line. */
function splitLines(text: string | null): string[] {
  if (text === null || text === '') return [];
  return text.replace(/\n$/, '').split('\n');
}

function chooseSign(added: boolean, removed: boolean): Line['sign'] {
  if (added) return '+';
  if (removed) return '-';
  return ' ';
}

function compareLines(old: string[], fresh: string[]): readonly Line[] {
  const lines = (sign: Line['sign'], texts: readonly string[]) => texts.map((text) => ({ sign, text }));
  const parts = diffArrays(old, fresh, { maxEditLength: MOST_EDITS });
  if (parts === undefined) return [...lines('-', old), ...lines('+', fresh)];
  return parts.flatMap(({ added, removed, value }) => lines(chooseSign(added, removed), value));
}
