// A button that copies a text to the clipboard and reports that it did.
import { useEffect, useState } from 'preact/hooks';
import { Icon } from './labels.tsx';

const SHOWN_MS = 2000;

/** `name` is what the button is called, e.g. `Copy the session id`. */
export function CopyButton({ text, name }: { readonly text: string; readonly name: string }) {
  const [result, setResult] = useState<'copied' | 'failed' | null>(null);
  useEffect(() => {
    if (result === null) return;
    const timer = setTimeout(() => setResult(null), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [result]);
  const copy = () => {
    copyText(text).then(
      () => setResult('copied'),
      () => setResult('failed'),
    );
  };
  return (
    <button type="button" class="icon-button" aria-label={name} title={name} onClick={copy}>
      {result === 'copied' && <Icon name="check" />}
      {result === null && <Icon name="copy" />}
      {result === 'failed' && <Icon name="alert" />}
      <span class="visually-hidden" role="status">
        {result}
      </span>
    </button>
  );
}

/** Browsers offer the clipboard to pages over https and of this host; to others the older command. */
async function copyText(text: string): Promise<void> {
  const clipboard: Clipboard | undefined = navigator.clipboard;
  if (clipboard !== undefined) return clipboard.writeText(text);
  const area = document.createElement('textarea');
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand('copy');
  area.remove();
  if (!done) throw new Error('The browser does not copy.');
}
