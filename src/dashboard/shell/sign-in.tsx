// Signing in with a token, and the page that waits meanwhile (17 §3, 23).
import { type ComponentChild, render } from 'preact';
import { useId, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { ApiError, type OwnToken } from '#client/client.ts';
import { createApi, explain } from '../data/api.ts';

export const REVOKED =
  'The server does not accept this token any more: it was revoked or has expired. Sign in with another one.';
const REFUSED = 'The server does not accept this token.';
/** What a header can carry. */
const SENDABLE = /^[\x21-\x7e]+$/;

/** Asks for a token until the server accepts one. The browser keeps it for this tab alone. */
export function SignIn(props: {
  /** Why the token before is not used any more; null = there was none, or the person signed out. */
  readonly notice: string | null;
  readonly onSignedIn: (token: string, own: OwnToken) => void;
}) {
  const [token, setToken] = useState('');
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(props.notice);
  const field = useId();
  const errorId = useId();
  const input = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => input.current?.focus(), []);
  const signIn = async () => {
    const entered = token.trim();
    if (entered === '') return;
    setBusy(true);
    try {
      props.onSignedIn(entered, await readOwnToken(entered));
    } catch (reason) {
      setError(isRefusal(reason) ? REFUSED : explain(reason));
      setBusy(false);
      input.current?.select();
    }
  };
  return (
    <main class="sign-in">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void signIn();
        }}
      >
        <h1>Sign in to Metis</h1>
        <p>
          This server requires a token. This tab keeps it, also when it is reloaded, and forgets it when you sign out or
          close the tab.
        </p>
        <label for={field}>Token</label>
        <input
          id={field}
          type="password"
          autoComplete="off"
          spellcheck={false}
          value={token}
          aria-invalid={error !== null}
          aria-describedby={error === null ? undefined : errorId}
          onInput={(event) => setToken(event.currentTarget.value)}
          ref={input}
        />
        {error !== null && (
          <p class="field-error" id={errorId} role="alert">
            {error}
          </p>
        )}
        <button type="submit" class="button primary" disabled={busy || token.trim() === ''}>
          Sign in
        </button>
      </form>
    </main>
  );
}

async function readOwnToken(token: string): Promise<OwnToken> {
  if (!SENDABLE.test(token)) throw new ApiError(401, 'unauthorized', REFUSED, {});
  return createApi(token).client.getOwnToken();
}

function isRefusal(error: unknown): boolean {
  return error instanceof ApiError && error.code === 'unauthorized';
}

/**
 * The page in an element of its own, which is taken out of the document while no person is signed in: nothing of it can be
 * read then, and what was typed is there when the person comes back.
 */
export function Stage(props: { readonly shown: boolean; readonly children: ComponentChild }) {
  const place = useRef<HTMLDivElement>(null);
  const [host] = useState(createHost);
  const focus = useRef<Element | null>(null);
  const wasShown = useRef(false);
  if (wasShown.current && !props.shown) focus.current = document.activeElement;
  wasShown.current = props.shown;
  useLayoutEffect(() => {
    if (!props.shown) return;
    place.current?.append(host);
    // A dialog that was taken out of the document is none until it is shown again.
    for (const dialog of host.querySelectorAll<HTMLDialogElement>('dialog[open]')) {
      dialog.removeAttribute('open');
      dialog.showModal();
    }
    if (focus.current instanceof HTMLElement) focus.current.focus();
    return () => host.remove();
  }, [host, props.shown]);
  useLayoutEffect(() => render(props.children, host));
  useLayoutEffect(() => () => render(null, host), [host]);
  return <div class="stage" ref={place} />;
}

function createHost(): HTMLElement {
  const host = document.createElement('div');
  host.className = 'stage';
  return host;
}
