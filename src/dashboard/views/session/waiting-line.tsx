// What the tree waits for at this moment, in one line (20 §6).
import type { Session } from '#client/client.ts';
import { wordsFor } from '#client/stream-items.ts';
import { asksPerson } from '#dashboard/format/waiting.ts';
import { Icon } from '#dashboard/parts/icon.tsx';
import { Elapsed } from '#dashboard/parts/time.tsx';
import type { LiveNode } from './live/live-node.ts';

/** What a person can do something about comes first. */
const ORDER = ['approval', 'budget', 'slot', 'tool', 'model'];
const NAMES = 3;

/**
 * Nothing is said of a planner that waits for its workers: what they wait for is. Its place is kept while there is
 * nothing to say, so that the page stands still.
 */
export function WaitingLine(props: { readonly waiting: Session['waiting_on']; readonly nodes: readonly LiveNode[] }) {
  const labelOf = (id: string) => props.nodes.find(({ session_id }) => session_id === id)?.label ?? 'a worker';
  const groups = ORDER.map((kind) => props.waiting.filter((one) => one.kind === kind)).filter((of) => of.length > 0);
  return (
    <p class="waiting-line" role="status">
      {groups.length > 0 && <Icon name="clock" />}
      {groups.map((group) => {
        const [oldest] = group;
        if (oldest === undefined) return null;
        const names = [...new Set(group.map(({ session_id }) => labelOf(session_id)))];
        const more = names.length > NAMES ? ` and ${names.length - NAMES} more` : '';
        return (
          <span key={oldest.kind} class={asksPerson(oldest) ? 'asks' : undefined}>
            {names.slice(0, NAMES).join(', ')}
            {more} {names.length === 1 ? 'waits' : 'wait'} for {wordsFor(oldest.kind)}{' '}
            <Elapsed from={oldest.since} to={null} />
          </span>
        );
      })}
    </p>
  );
}
