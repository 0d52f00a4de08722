// Asks for the server's token: it is kept in this tab's memory and nowhere else (17 §3).
import { useId, useState } from 'preact/hooks';

export function TokenEntry(props: { readonly refused: boolean; readonly onToken: (token: string) => void }) {
  const [token, setToken] = useState('');
  const field = useId();
  const said = useId();
  return (
    <main class="token-entry">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (token.trim() !== '') props.onToken(token.trim());
        }}
      >
        <h1>Metis</h1>
        <p>This server wants a token. It is kept in this tab's memory only and is gone when the tab is closed.</p>
        <label for={field}>Token</label>
        <input
          id={field}
          type="password"
          autoComplete="off"
          spellcheck={false}
          value={token}
          aria-invalid={props.refused}
          aria-describedby={props.refused ? said : undefined}
          onInput={(event) => setToken(event.currentTarget.value)}
          ref={(input) => input?.focus()}
        />
        {props.refused && (
          <p class="field-error" id={said} role="alert">
            The server does not accept this token. It is one of `server.auth_tokens` in its configuration.
          </p>
        )}
        <button type="submit" class="button primary" disabled={token.trim() === ''}>
          Continue
        </button>
      </form>
    </main>
  );
}
