// What slot 4 is decided with: the turn's shape, and what earlier turns of that shape suggest (03 §8, 12 §12.4).

import { fingerprintOf } from '#core/policy/learning/fingerprint.ts';
import { tracesOf, withPaths } from '#core/policy/learning/traces.ts';
import { type RouteEnv, validationFailure } from '#core/policy/routing/candidate.ts';
import type { ToolSet } from '#core/ports/tool.ts';
import type { Fingerprint } from '#protocol/learning/pattern.ts';
import { type StoredMessage, textOf } from '#protocol/message.ts';
import type { TurnContext } from '#protocol/route.ts';
import type { SessionRecord } from '#protocol/session.ts';
import type { Engine } from '../state/engine.ts';

/** Of the turn to route, what its shape is made of. */
export interface TurnToShape {
  readonly session: SessionRecord;
  /** Everything stored of the session before this turn. */
  readonly earlier: readonly StoredMessage[];
  /** What a worker was told to do, and the files it was referred to. */
  readonly worker: { readonly task: string; readonly files: readonly string[] } | null;
  readonly toolset: ToolSet;
}

/** The context but for what is found here. */
type Unadvised = Omit<TurnContext, 'recommendation' | 'recommendation_absent'>;
type Advice = Pick<TurnContext, 'recommendation' | 'recommendation_absent'>;

export interface Advised {
  /** Stored with the turn; null where nothing is learned of it. */
  readonly fingerprint: Fingerprint | null;
  readonly advice: Advice;
}

const ABSENT: Advised = {
  fingerprint: null,
  advice: { recommendation: null, recommendation_absent: 'pattern store not configured' },
};

/** Never throws: whatever fails leaves the turn without advice, or without a shape. */
export async function adviceFor(
  engine: Engine,
  turn: TurnToShape,
  message: StoredMessage,
  { context, env }: { readonly context: Unadvised; readonly env: RouteEnv },
): Promise<Advised> {
  const { recommender } = engine;
  const config = env.policies.pattern ?? engine.config.pattern;
  if (recommender === null || !config.enabled) return ABSENT;
  let fingerprint: Fingerprint | null = null;
  try {
    fingerprint = shapeOf(turn, message, context);
    if (isChosen(context, env)) return { fingerprint, advice: ABSENT.advice };
    const { workspace_path } = context;
    const recommendation = await recommender.recommend({ workspace_path, fingerprint, config });
    return { fingerprint, advice: { recommendation, recommendation_absent: null } };
  } catch (err) {
    engine.log.warn({ err, session_id: context.session_id }, 'no recommendation: the pattern store is unavailable');
    return { fingerprint, advice: { recommendation: null, recommendation_absent: 'pattern store unavailable' } };
  }
}

/** A person's own choice stands, so nobody needs to be asked. */
function isChosen(context: Unadvised, env: RouteEnv): boolean {
  return [context.per_message_override, context.session_active_model].some(
    (model) => model !== null && validationFailure(model, context, env) === null,
  );
}

function shapeOf(turn: TurnToShape, message: StoredMessage, context: Unadvised): Fingerprint {
  const { session, toolset, earlier, worker } = turn;
  const definition = (name: string) => toolset.definition(name);
  const traces = tracesOf(earlier, session.workspace_path, definition);
  return fingerprintOf(
    {
      text: worker?.task ?? textOf(message.content),
      has_images: context.message_has_images,
      estimated_input_tokens: context.estimated_input_tokens,
      workspace_hash: session.workspace_hash,
      traces: withPaths(traces, worker?.files ?? [], session.workspace_path),
    },
    definition,
  );
}
