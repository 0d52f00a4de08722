// The page around the views: token, navigation, and whether the server answers.
import { useEffect, useId, useMemo, useState } from 'preact/hooks';
import { ApiContext, createApi } from '../data/api.ts';
import { type Pulse, PulseContext, usePulse } from '../data/queries.ts';
import { formatCount } from '../format/format.ts';
import { Icon } from '../parts/labels.tsx';
import { Empty } from '../parts/panels.tsx';
import { formatPlace, usePlace } from './place.ts';
import { VIEWS, type View } from './views.tsx';

// Asks for the server's token: it is kept in this tab's memory and nowhere else (17 §3).

function TokenEntry(props: { readonly refused: boolean; readonly onToken: (token: string) => void }) {
  const [token, setToken] = useState('');
  const field = useId();
  const errorId = useId();
  return (
    <main class="token-entry">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (token.trim() !== '') props.onToken(token.trim());
        }}
      >
        <h1>Metis</h1>
        <p>
          This server requires a token. The page keeps it in the memory of this tab only and forgets it when the tab
          closes.
        </p>
        <label for={field}>Token</label>
        <input
          id={field}
          type="password"
          autoComplete="off"
          spellcheck={false}
          value={token}
          aria-invalid={props.refused}
          aria-describedby={props.refused ? errorId : undefined}
          onInput={(event) => setToken(event.currentTarget.value)}
          ref={(input) => input?.focus()}
        />
        {props.refused && (
          <p class="field-error" id={errorId} role="alert">
            The server does not accept this token. Enter one of `server.auth_tokens` of the server's configuration.
          </p>
        )}
        <button type="submit" class="button primary" disabled={token.trim() === ''}>
          Continue
        </button>
      </form>
    </main>
  );
}

// The side bar, on narrow screens a bar at the top: the views, and the state of the server.

function Navigation(props: {
  readonly views: readonly Omit<View, 'component'>[];
  readonly current: string;
  readonly pulse: Pulse | null;
  /** The server did not answer the last time it was asked. */
  readonly lost: boolean;
}) {
  const { pulse, lost } = props;
  const health = pulse?.health ?? null;
  const waiting = pulse?.approvals.length ?? 0;
  return (
    <header class="navigation">
      <a class="brand" href="#/">
        <span class="brand-mark" aria-hidden="true">
          <Icon name="route" />
        </span>
        <span class="brand-name">Metis</span>
      </a>
      <nav aria-label="Views">
        {props.views.map((view) => (
          <a
            key={view.id}
            href={formatPlace(view.id)}
            aria-current={view.id === props.current ? 'page' : undefined}
            title={view.title}
          >
            <Icon name={view.icon} />
            <span class="nav-title">{view.title}</span>
            {view.id === 'approvals' && waiting > 0 && (
              <span class="nav-count" role="img" aria-label={`${formatCount(waiting, 'approval')} waiting`}>
                {pulse?.more ? `${waiting}+` : waiting}
              </span>
            )}
          </a>
        ))}
      </nav>
      <div class="server-state" role="status">
        {lost ? (
          <span class="state warn">
            <span class="dot" aria-hidden="true" />
            Reconnecting…
          </span>
        ) : (
          health && (
            <>
              <span class={health.active_turns > 0 ? 'state live' : 'state ok'}>
                <span class="dot" aria-hidden="true" />
                {health.active_turns > 0 ? `${formatCount(health.active_turns, 'turn')} running` : 'Connected'}
              </span>
              <span class="quiet version">v{health.version}</span>
            </>
          )
        )}
      </div>
    </header>
  );
}

export function App() {
  const [token, setToken] = useState<string | null>(null);
  const [wanted, setWanted] = useState(false);
  const api = useMemo(() => createApi(token, () => setWanted(true)), [token]);
  if (wanted) {
    const accept = (entered: string) => {
      setToken(entered);
      setWanted(false);
    };
    return <TokenEntry refused={token !== null} onToken={accept} />;
  }
  return (
    <ApiContext.Provider value={api}>
      <Shell key={token ?? ''} />
    </ApiContext.Provider>
  );
}

function Shell() {
  const place = usePlace();
  const pulse = usePulse();
  const view = place.view === '' ? VIEWS[0] : VIEWS.find(({ id }) => id === place.view);
  const waiting = pulse.data?.approvals.length ?? 0;
  const title = `${waiting > 0 ? `(${waiting}) ` : ''}${view === undefined ? '' : `${view.title} · `}Metis`;
  useEffect(() => {
    document.title = title;
  }, [title]);
  return (
    <div class="shell">
      <button type="button" class="skip" onClick={() => document.getElementById('view')?.focus()}>
        Skip to content
      </button>
      <Navigation views={VIEWS} current={view?.id ?? ''} pulse={pulse.data} lost={pulse.error !== null} />
      <main id="view" tabIndex={-1}>
        <PulseContext.Provider value={pulse}>
          {view === undefined ? (
            <div class="view">
              <header class="view-head">
                <h1>Not found</h1>
              </header>
              <Empty icon="search" title="This page does not exist">
                <p>
                  The dashboard has no view “{place.view}”. <a href="#/">Open the overview</a>
                </p>
              </Empty>
            </div>
          ) : (
            <view.component key={view.id} place={place} />
          )}
        </PulseContext.Provider>
      </main>
    </div>
  );
}
