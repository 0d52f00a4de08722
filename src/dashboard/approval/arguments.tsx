// What a call was given, word for word; of an edit, which lines go and which come.
import { visible } from '../format/unseen.ts';
import { Clipped } from '../parts/clipped.tsx';
import { Diff } from '../parts/diff.tsx';

/** `edit` is the input of a call of `edit_file`; `text` is what is shown of any other. */
export function Arguments(props: {
  readonly edit?: Readonly<Record<string, unknown>> | undefined;
  readonly text: string;
}) {
  const edit = props.edit === undefined ? null : editOf(props.edit);
  if (edit === null) return <Given text={props.text} />;
  return <Diff name={`Change of ${edit.path}`} head={edit.path} old={edit.old} fresh={edit.fresh} />;
}

/** A figure and no region: with many cards on a page there would be as many landmarks. */
function Given({ text }: { readonly text: string }) {
  return (
    <Clipped text={text}>
      {(shown) => (
        <figure class="code-block" aria-label="Arguments" tabIndex={0}>
          <pre>
            <code>{visible(shown)}</code>
          </pre>
        </figure>
      )}
    </Clipped>
  );
}

/** Null unless the arguments are those of an edit and nothing more: nothing may go unseen. */
function editOf(input: Readonly<Record<string, unknown>>): { path: string; old: string; fresh: string } | null {
  const { path, old, new: fresh, ...rest } = input;
  if (typeof path !== 'string' || typeof old !== 'string' || typeof fresh !== 'string') return null;
  return Object.keys(rest).length > 0 ? null : { path, old, fresh };
}
