// What a call was given, word for word; of an edit, which lines go and which come, and of a file to be written its lines.
import { visible } from '../format/unseen.ts';
import { Clipped } from '../parts/clipped.tsx';
import { Diff } from '../parts/diff.tsx';

/** `call` is a call that is about to run, once its input is here; `text` is what is shown of any other. */
export function Arguments(props: {
  readonly call: { readonly tool: string; readonly input: Readonly<Record<string, unknown>> } | null;
  readonly text: string;
}) {
  const { call } = props;
  const edit = call?.tool === 'edit_file' ? editOf(call.input) : null;
  if (edit !== null) return <Diff name={`Change of ${edit.path}`} head={edit.path} old={edit.old} fresh={edit.fresh} />;
  const file = call?.tool === 'write_file' ? fileOf(call.input) : null;
  if (file !== null) return <Given name={`Content of ${file.path}`} head={file.path} text={file.content} />;
  return <Given name="Arguments" text={props.text} />;
}

/** A figure and no region: with many cards on a page there would be as many landmarks. */
function Given({ name, head, text }: { readonly name: string; readonly head?: string; readonly text: string }) {
  return (
    <Clipped text={text}>
      {(shown) => (
        <figure class="code-block" aria-label={name} tabIndex={0}>
          <pre>
            <code>
              {head !== undefined && <span class="diff-file">{visible(head)}</span>}
              {visible(shown)}
            </code>
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

/** Null unless the arguments are those of a whole file and nothing more. */
function fileOf(input: Readonly<Record<string, unknown>>): { path: string; content: string } | null {
  const { path, content, ...rest } = input;
  if (typeof path !== 'string' || typeof content !== 'string') return null;
  return Object.keys(rest).length > 0 ? null : { path, content };
}
