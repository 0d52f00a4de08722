// What routing would decide for a message, asked without a turn (03 §6.4, 05 §3.5).
import type { PolicyEvaluation, Refusal } from '#protocol/route.ts';
import { knownToolsetOf } from './definitions/session-workers.ts';
import { routeTurn } from './routing/route-turn.ts';
import { newSession } from './session/new-session.ts';
import type { Engine } from './state/engine.ts';
import { forkMemory } from './state/route-memory.ts';
import { takeMessage } from './turn/accept-message.ts';
import { newUserMessage } from './turn/admit.ts';

export interface RouteQuestion {
  readonly text: string;
  readonly workspace_path: string;
  /** Id or alias, as a session's sticky model; null = none. */
  readonly model: string | null;
}

export interface RouteAnswer {
  /** '' when refused. */
  readonly chosen_model: string;
  readonly winner_index: number;
  readonly refused: Refusal | null;
  readonly chain: readonly PolicyEvaluation[];
  readonly estimated_input_tokens: number;
  readonly routing_policy_version: string | null;
}

/**
 * Decides for the message as the first of a new session; nothing is run, stored or remembered. A refusal is an answer.
 * Throws `not_found` (workspace), `workspace_not_allowed`, `model_not_configured`, `validation_error`,
 * `unknown_alias`, `override_missing_body`.
 */
export async function explainRoute(engine: Engine, question: RouteQuestion): Promise<RouteAnswer> {
  const apart: Engine = { ...engine, routes: forkMemory(engine.routes) };
  const session = await newSession(apart, {
    workspace_path: question.workspace_path,
    initial_active_model: question.model,
    max_cost_usd: null,
    on_reached: null,
    approval_mode: null,
  });
  const message = await takeMessage(apart, session, { content: question.text, per_message_override: null });
  const turnId = apart.ids.turn();
  const now = apart.clock.now();
  const { decision, context, environment } = await routeTurn(apart, {
    session,
    turn_id: turnId,
    history: [newUserMessage(apart, session, { turn_id: turnId, content: message.content, now })],
    earlier: [],
    override: message.override,
    worker: null,
    caps: [],
    toolset: await knownToolsetOf(apart, session),
    tool_names: null,
    now,
  });
  return {
    chosen_model: decision.chosen_model,
    winner_index: decision.winner_index,
    refused: decision.refused,
    chain: decision.chain,
    estimated_input_tokens: context.estimated_input_tokens,
    routing_policy_version: environment.version,
  };
}
