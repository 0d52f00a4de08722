// The page around the views: who is signed in, navigation, and whether the server answers.
import type { ComponentChildren } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { OwnToken } from '#client/client.ts';
import { ApiContext, createApi, PersonContext, useApi, useMay, useOwnToken } from '../data/api.ts';
import { listAttention } from '../data/attention.ts';
import { useAttentionNotice } from '../data/notify.ts';
import { forgetDrafts } from '../data/page-memory.ts';
import { type Pulse, PulseContext, usePolled, usePulse } from '../data/queries.ts';
import { formatCount, formatNumber, isWaitingForPerson } from '../format/format.ts';
import { Icon, type Tone } from '../parts/labels.tsx';
import { Empty } from '../parts/panels.tsx';
import { forgetToken, keepTheme, keepToken, readTheme, readToken, THEMES, type Theme } from './kept.ts';
import { Palette } from './palette.tsx';
import { formatPlace, type Place, usePlace } from './place.ts';
import { REVOKED, SignIn, Stage } from './sign-in.tsx';
import { useViews, type View } from './views.tsx';

const NO_TITLES: ReadonlyMap<string, null> = new Map();

// The side bar, on narrow screens a bar at the top: the views, and the state of the server.

function Navigation(props: {
  readonly views: readonly Omit<View, 'component'>[];
  readonly current: string;
  readonly pulse: Pulse | null;
  /** The server did not answer the last time it was asked. */
  readonly lost: boolean;
  /** Matters that wait for the person. */
  readonly attention?: number;
  readonly children?: ComponentChildren;
}) {
  const { pulse, lost, attention = 0 } = props;
  return (
    <header class="navigation">
      <a class="brand" href="#/" aria-label="Metis">
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
      {props.children}
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

function countAttention(pulse: Pulse | null, may: ReturnType<typeof useMay>): number {
  if (pulse === null) return 0;
  return listAttention(pulse, NO_TITLES, may).length;
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

/** How often the role, the limits and the expiry of the token are read. */
const OWN_MS = 30_000;
/** Why no person is signed in: no token yet or signed out; or the token is refused. */
type Ended = 'none' | 'refused';

export function App() {
  const [token, setToken] = useState(readToken);
  const [ended, setEnded] = useState<Ended | null>(null);
  // A new page for another person: nothing of the one before is left on it.
  const [pages, setPages] = useState(0);
  const last = useRef<OwnToken | null>(null);
  const current = useRef(token);
  current.current = token;
  const api = useMemo(() => {
    const askForToken = () => {
      // The answer to a request that was sent with the token before.
      if (current.current !== token) return;
      forgetToken();
      setEnded(token === null ? 'none' : 'refused');
    };
    return createApi(token, askForToken);
  }, [token]);
  const isPaused = ended !== null;
  const shown = useMemo(() => ({ ...api, isPaused }), [api, isPaused]);
  const signIn = (entered: string, own: OwnToken) => {
    keepToken(entered);
    if (last.current !== null && !isSamePerson(last.current, own)) setPages(pages + 1);
    setToken(entered);
    setEnded(null);
  };
  const signOut = () => {
    forgetToken();
    last.current = null;
    setPages(pages + 1);
    setToken(null);
    setEnded('none');
  };
  // Behind the end of the page, which keeps what was typed.
  useEffect(() => {
    if (ended === 'none') forgetDrafts();
  }, [ended, pages]);
  return (
    <>
      {ended !== null && <SignIn notice={ended === 'refused' ? REVOKED : null} onSignedIn={signIn} />}
      <Stage key={pages} shown={ended === null}>
        <ApiContext.Provider value={shown}>
          <Page last={last} onSignOut={signOut} />
        </ApiContext.Provider>
      </Stage>
    </>
  );
}

function isSamePerson(one: OwnToken, other: OwnToken): boolean {
  return one.token?.id === other.token?.id && one.role === other.role;
}

/** The navigation alone until the person is known, so that nothing appears that goes away again. */
function Page(props: { readonly last: { current: OwnToken | null }; readonly onSignOut: () => void }) {
  const { client } = useApi();
  const { data, error } = usePolled((signal) => client.getOwnToken({ signal }), 'own token', OWN_MS);
  if (data !== null) props.last.current = data;
  if (data === null)
    return (
      <div class="shell">
        <Navigation views={[]} current="" pulse={null} lost={error !== null} />
        <main id="view" />
      </div>
    );
  return (
    <PersonContext.Provider value={data}>
      <Shell onSignOut={props.onSignOut} />
    </PersonContext.Provider>
  );
}

function Shell({ onSignOut }: { readonly onSignOut: () => void }) {
  const place = usePlace();
  const pulse = usePulse();
  const may = useMay();
  const views = useViews();
  const view = findView(views, place);
  const attention = countAttention(pulse.data, may);
  useTitle(view, attention);
  useAttentionNotice(attention);
  return (
    <div class="shell">
      <button type="button" class="skip" onClick={() => document.getElementById('view')?.focus()}>
        Skip to content
      </button>
      <Navigation
        views={views}
        current={view?.id ?? ''}
        pulse={pulse.data}
        lost={pulse.error !== null}
        attention={attention}
      >
        <Identity onSignOut={onSignOut} />
      </Navigation>
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

/** Who is signed in, and signing out. Nothing where the server requires no token. */
function Identity({ onSignOut }: { readonly onSignOut: () => void }) {
  const { token, role, required } = useOwnToken();
  if (!required) return null;
  const name = token?.name ?? 'without a name';
  return (
    <div class="identity">
      <span class="identity-name" title={`Signed in: ${name}, ${role}`}>
        {token !== null && <strong>{token.name}</strong>} <span class="quiet">{role}</span>
      </span>
      <button type="button" class="button ghost icon-only" aria-label="Sign out" title="Sign out" onClick={onSignOut}>
        <Icon name="signOut" />
      </button>
    </div>
  );
}

function findView(views: readonly View[], place: Place): View | undefined {
  if (place.view === '') return views[0];
  return views.find(({ id }) => id === place.view);
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
