// The page around the views: token, navigation, and whether the server answers.
import { useEffect, useMemo, useState } from 'preact/hooks';
import { ApiContext, createApi } from '../data/api.ts';
import { PulseContext, usePulse } from '../data/open-approvals.ts';
import { Empty } from '../parts/notice.tsx';
import { Navigation } from './navigation.tsx';
import { usePlace } from './router.ts';
import { TokenEntry } from './token-entry.tsx';
import { VIEWS } from './views.tsx';

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
              <Empty icon="search" title="There is no such page">
                <p>
                  Nothing is shown at “{place.view}”. <a href="#/">Back to the start</a>
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
