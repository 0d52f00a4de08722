// The side bar, on narrow screens a bar at the top: the views, and the state of the server.
import type { Pulse } from '../data/open-approvals.ts';
import { plural } from '../format/number.ts';
import { Icon } from '../parts/icon.tsx';
import { placeOf } from './place.ts';
import type { View } from './views.tsx';

export function Navigation(props: {
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
            href={placeOf(view.id)}
            aria-current={view.id === props.current ? 'page' : undefined}
            title={view.title}
          >
            <Icon name={view.icon} />
            <span class="nav-title">{view.title}</span>
            {view.id === 'approvals' && waiting > 0 && (
              <span class="nav-count" role="img" aria-label={`${plural(waiting, 'approval')} waiting`}>
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
                {health.active_turns > 0 ? `${plural(health.active_turns, 'turn')} running` : 'Connected'}
              </span>
              <span class="quiet version">v{health.version}</span>
            </>
          )
        )}
      </div>
    </header>
  );
}
