// The foot of an ended turn: what it took, and thumbs from which routing learns (12 §12.8).
import { useState } from 'preact/hooks';
import type { Turn } from '#client/client.ts';
import { explain, useApi } from '#dashboard/data/api.ts';
import { plural } from '#dashboard/format/number.ts';
import { duration } from '#dashboard/format/time.ts';
import { Count, Money } from '#dashboard/parts/amount.tsx';
import { State } from '#dashboard/parts/badge.tsx';
import { Icon } from '#dashboard/parts/icon.tsx';

const THUMBS = [
  { label: 'good', name: 'Good answer', icon: 'thumb', score: 1 },
  { label: 'bad', name: 'Bad answer', icon: 'thumbDown', score: 0 },
] as const;

type UserScore = Turn['user_score'];

export function TurnEnd({ turn }: { readonly turn: Turn }) {
  const input = turn.total_input_tokens + turn.total_cached_input_tokens + turn.total_cache_creation_input_tokens;
  return (
    <footer class="turn-end">
      {turn.status !== 'completed' && <State state={turn.status} />}
      {turn.error_message !== null && <span class="field-error">{turn.error_message}</span>}
      <span>{plural(turn.llm_call_count, 'call')}</span>
      <span>
        <Count n={input} unit="token" rest=" in" /> in · <Count n={turn.total_output_tokens} unit="token" rest=" out" />{' '}
        out
      </span>
      {turn.wall_time_seconds !== null && <span class="number">{duration(turn.wall_time_seconds * 1000)}</span>}
      <Money usd={turn.total_cost_usd} />
      {turn.worker_session_ids.length > 0 && (
        <span>
          by workers <Money usd={turn.workers_cost_usd} />
        </span>
      )}
      <TurnScore turn={turn} />
    </footer>
  );
}

function TurnScore({ turn }: { readonly turn: Turn }) {
  const { client, failed } = useApi();
  const [said, setSaid] = useState<UserScore>(null);
  const { score } = newest(said, turn.user_score) ?? { score: null };
  const [error, setError] = useState<string | null>(null);
  const give = async ({ label, score: wanted }: (typeof THUMBS)[number]) => {
    // The same again would take away what was said beside it.
    if (score === wanted) return;
    try {
      setSaid(await client.scoreTurn(turn.session_id, turn.id, { score: label }));
      setError(null);
    } catch (reason) {
      failed(reason);
      setError(explain(reason));
    }
  };
  return (
    <span class="turn-score">
      {error !== null && <span class="field-error">{error}</span>}
      {THUMBS.map((thumb) => (
        <button
          key={thumb.label}
          type="button"
          class="thumb"
          aria-label={thumb.name}
          aria-pressed={score === thumb.score}
          title={thumb.name}
          onClick={() => void give(thumb)}
        >
          <Icon name={thumb.icon} />
        </button>
      ))}
    </span>
  );
}

/** What was said here may not have been read again yet, and somebody else may have said something since. */
function newest(here: UserScore, read: UserScore): UserScore {
  return here !== null && (read === null || here.scored_at > read.scored_at) ? here : read;
}
