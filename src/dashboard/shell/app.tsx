// The page around the views: token, navigation, and whether the server answers.
import type { ComponentChildren } from 'preact';
import { useEffect, useId, useMemo, useState } from 'preact/hooks';
import { ApiContext, createApi } from '../data/api.ts';
import { listAttention } from '../data/attention.ts';
import { useAttentionNotice } from '../data/notify.ts';
import { type Pulse, PulseContext, usePulse } from '../data/queries.ts';
import { formatCount, formatNumber, isWaitingForPerson } from '../format/format.ts';
import { Icon, type Tone } from '../parts/labels.tsx';
import { Empty } from '../parts/panels.tsx';
import { forgetToken, keepTheme, keepToken, readTheme, readToken, THEMES, type Theme } from './kept.ts';
import { Palette } from './palette.tsx';
import { formatPlace, type Place, usePlace } from './place.ts';
import { VIEWS, type View } from './views.tsx';

// Asks for the server's token: the browser keeps it for this tab alone (17 §3).

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
          This server requires a token. This tab keeps it, also when it is reloaded, and forgets it when it is closed.
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

const NO_TITLES: ReadonlyMap<string, null> = new Map();

// The side bar, on narrow screens a bar at the top: the views, and the state of the server.

function Navigation(props: {
  readonly views: readonly Omit<View, 'component'>[];
  readonly current: string;
  readonly pulse: Pulse | null;
  /** The server did not answer the last time it was asked. */
  readonly lost: boolean;
}) {
  const { pulse, lost } = props;
  const attention = countAttention(pulse);
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
            {view.id === 'overview' && attention > 0 && (
              <span class="nav-count" role="img" aria-label={`${formatCount(attention, 'matter')} for your attention`}>
                {formatNumber(attention)}
              </span>
            )}
          </a>
        ))}
      </nav>
      <ThemeSwitch />
      <div class="server-state" role="status">
        <ServerState pulse={pulse} lost={lost} />
      </div>
    </header>
  );
}

const THEME_NAMES: Readonly<Record<Theme, string>> = { system: 'As the system', light: 'Light', dark: 'Dark' };

function ThemeSwitch() {
  const [theme, setTheme] = useState(readTheme);
  return (
    <fieldset class="theme-switch">
      <legend class="hidden">Theme</legend>
      {THEMES.map((one) => (
        <label key={one} title={THEME_NAMES[one]}>
          <input
            type="radio"
            name="theme"
            class="hidden"
            aria-label={THEME_NAMES[one]}
            checked={one === theme}
            onChange={() => {
              keepTheme(one);
              setTheme(one);
            }}
          />
          <Icon name={one} />
        </label>
      ))}
    </fieldset>
  );
}

function countAttention(pulse: Pulse | null): number {
  if (pulse === null) return 0;
  return listAttention(pulse, NO_TITLES).length;
}

function ServerState({ pulse, lost }: { readonly pulse: Pulse | null; readonly lost: boolean }) {
  if (lost) return <Dot tone="warn">Reconnecting…</Dot>;
  if (pulse === null) return null;
  const running = pulse.active.filter((session) => !isWaitingForPerson(session)).length;
  return (
    <>
      {running > 0 && <Dot tone="live">{formatNumber(running)} running</Dot>}
      {running === 0 && <Dot tone="ok">Connected</Dot>}
      <span class="quiet version">v{pulse.health.version}</span>
    </>
  );
}

function Dot({ tone, children }: { readonly tone: Tone; readonly children: ComponentChildren }) {
  return (
    <span class={`state ${tone}`}>
      <span class="dot" aria-hidden="true" />
      {children}
    </span>
  );
}

export function App() {
  const [token, setToken] = useState(readToken);
  const [wanted, setWanted] = useState(false);
  const api = useMemo(() => {
    const askForToken = () => {
      forgetToken();
      setWanted(true);
    };
    return createApi(token, askForToken);
  }, [token]);
  if (wanted) {
    const accept = (entered: string) => {
      keepToken(entered);
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
  const view = findView(place);
  const attention = countAttention(pulse.data);
  useTitle(view, attention);
  useAttentionNotice(attention);
  return (
    <div class="shell">
      <button type="button" class="skip" onClick={() => document.getElementById('view')?.focus()}>
        Skip to content
      </button>
      <Navigation views={VIEWS} current={view?.id ?? ''} pulse={pulse.data} lost={pulse.error !== null} />
      <Palette />
      <main id="view" tabIndex={-1}>
        <PulseContext.Provider value={pulse}>
          {view === undefined && <NotFound name={place.view} />}
          {view !== undefined && <view.component key={view.id} place={place} />}
        </PulseContext.Provider>
      </main>
    </div>
  );
}

function findView(place: Place): View | undefined {
  if (place.view === '') return VIEWS[0];
  return VIEWS.find(({ id }) => id === place.view);
}

/** `(2) Sessions · Metis` while two matters wait for a person. */
function useTitle(view: View | undefined, waiting: number): void {
  let title = 'Metis';
  if (view !== undefined) title = `${view.title} · ${title}`;
  if (waiting > 0) title = `(${waiting}) ${title}`;
  useEffect(() => {
    document.title = title;
  }, [title]);
}

function NotFound({ name }: { readonly name: string }) {
  return (
    <div class="view">
      <header class="view-head">
        <h1>Not found</h1>
      </header>
      <Empty icon="search" title="This page does not exist">
        <p>
          The dashboard has no view “{name}”. <a href="#/">Open the overview</a>
        </p>
      </Empty>
    </div>
  );
}
