// Why this model: the seven places that could have chosen it, the one that did, and the value of each (03 §5).
import { useState } from 'preact/hooks';
import { explain, May, useApi } from '#dashboard/data/api.ts';
import { modelName } from '#dashboard/format/format.ts';
import { Icon } from '#dashboard/parts/labels.tsx';
import { nameReference } from '#protocol/text/model-reference.ts';
import type { Route } from './live/live-node.ts';
import { UseSuggestion } from './use-suggestion.tsx';

/** What the seven places are called. */
export const SLOT_NAMES: Readonly<Record<string, string>> = {
  per_message_override: 'Override in the message',
  manual_sticky: "The session's own model",
  rule: 'Routing rule',
  pattern: 'Learned from earlier turns',
  delegate_request: 'Tier of the delegation',
  workspace_default: 'Default of the workspace',
  global_default: 'Default of the server',
};

/** A line that unfolds into the chain. `known` was seen while one watched; else it is asked for. */
export function WhyModel(props: {
  readonly sessionId: string;
  /** Null: the session's first turn. */
  readonly turnId: string | null;
  readonly model: string | null;
  readonly known: Route | undefined;
}) {
  const { client, reportFailure } = useApi();
  const [asked, setAsked] = useState<Route | null>(null);
  const [notice, setNotice] = useState<string | null>(null);
  const route = props.known ?? asked;
  const loadRoute = async () => {
    if (route !== null) return;
    try {
      // Ids order by time, and the decision is the turn's second event.
      const since = props.turnId !== null && { since: props.turnId };
      const { events } = await client.listEvents(props.sessionId, { types: ['route.decided'], limit: 1, ...since });
      const [found] = events;
      if (found?.type === 'route.decided') setAsked(found.payload);
      else setNotice('Its event is no longer kept.');
    } catch (error) {
      reportFailure(error);
      setNotice(explain(error));
    }
  };
  return (
    <details class="why" onToggle={(event) => event.currentTarget.open && void loadRoute()}>
      <summary>
        <Icon name="route" />
        <span class="why-model">{props.model === null ? 'no model' : modelName(props.model)}</span>
        <span class="quiet">why this model</span>
      </summary>
      {route !== null && <Chain route={route} sessionId={props.sessionId} />}
      {route === null && <p class="quiet">{notice ?? 'Loading…'}</p>}
    </details>
  );
}

/** The reason of slot 4 in a worker, whose model its planner chose (03 §8). */
const IN_WORKER = 'delegate_request_in_flight';

/** The model that was learned and only shown; null = none, or the turn got it anyway. */
function findSuggestion({ chosen_model, chosen_effort }: Route, slot: Route['chain'][number]): string | null {
  if (slot.policy !== 'pattern' || slot.verdict !== 'deferred' || slot.reason === IN_WORKER) return null;
  if (slot.candidate_model === null) return null;
  const suggested = nameReference(slot.candidate_model, slot.candidate_effort);
  return suggested === nameReference(chosen_model, chosen_effort) ? null : suggested;
}

export function Chain({ route, sessionId }: { readonly route: Route; readonly sessionId: string }) {
  return (
    <ol class="chain">
      {route.chain.map((slot, i) => {
        const won = i === route.winner_index && route.refused === null;
        const suggested = findSuggestion(route, slot);
        return (
          <li key={slot.policy} class={won ? 'won' : slot.verdict} aria-current={won ? 'true' : undefined}>
            <span class="chain-mark" aria-hidden="true">
              {won ? <Icon name="check" /> : i + 1}
            </span>
            <span class="chain-slot">
              {SLOT_NAMES[slot.policy] ?? slot.policy}
              {slot.rule_name !== null && <span class="quiet"> “{slot.rule_name}”</span>}
            </span>
            <span class="chain-verdict">{won ? 'chose' : slot.verdict.replaceAll('_', ' ')}</span>
            <span class="chain-reason">
              {slot.candidate_model !== null && (
                <code>{nameReference(slot.candidate_model, slot.candidate_effort)}</code>
              )}{' '}
              {slot.reason}
              {slot.validation_failure !== null && ` (${slot.validation_failure.replaceAll('_', ' ')})`}
              {slot.tried_rules?.map((rule) => (
                <span key={rule.rule_name} class="quiet">
                  {' '}
                  “{rule.rule_name}” wanted <code>{nameReference(rule.candidate_model, rule.candidate_effort)}</code>:{' '}
                  {rule.validation_failure.replaceAll('_', ' ')}.
                </span>
              ))}
              {slot.pattern_alternatives?.map((other) => (
                <span key={other.model} class="quiet chain-other">
                  <code>{other.model}</code> scored {other.score.toFixed(2)} over {other.sample_size}.
                </span>
              ))}
              {suggested !== null && (
                <May operation="setDefaultModel">
                  <UseSuggestion sessionId={sessionId} model={suggested} />
                </May>
              )}
            </span>
          </li>
        );
      })}
    </ol>
  );
}
