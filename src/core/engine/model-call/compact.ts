// Room in a model's window: old results out of the view, then old turns told by a summary, each by a stored step (10 §7).

import { viewOf } from '#core/policy/context/view.ts';
import { asNeeded, type Elidable, elidables, savedBy } from '#core/policy/context/window.ts';
import type { Elision } from '#protocol/context/checkpoint.ts';
import type { Engine } from '../state/engine.ts';
import type { ModelRequest } from '../state/model-request.ts';
import { compacted } from '../state/run-progress.ts';
import type { TurnRun } from '../state/turn-run.ts';
import { compactedEvent, modelRequest } from './model-request.ts';
import { summarise } from './summarise.ts';

/** Room has to be made before this call. In mode `off` never: its provider says what is too much. */
export function isCrowded(engine: Engine, { load, window }: ModelRequest): boolean {
  return engine.config.context.compaction.mode !== 'off' && load > window.start;
}

/** The request as it fits its window, after what had to be stored for that; null when it cannot be made to, or the turn was stopped. */
export async function fitting(engine: Engine, run: TurnRun, prepared: ModelRequest): Promise<ModelRequest | null> {
  if (!isCrowded(engine, prepared)) return prepared;
  const made = await makeRoom(engine, run, prepared);
  return run.signal.aborted || made.load > prepared.window.budget ? null : made;
}

/**
 * The request made smaller because its provider found it too large, whatever was thought of it; null where nothing can
 * be taken out.
 */
export async function refitted(engine: Engine, run: TurnRun, prepared: ModelRequest): Promise<ModelRequest | null> {
  if (engine.config.context.compaction.mode === 'off') return null;
  const before = run.checkpoints;
  // The provider's word goes before the guess: it takes at least one token more than there is room for.
  const load = Math.max(prepared.load, Math.ceil(prepared.window.budget) + 1);
  const made = await makeRoom(engine, run, { ...prepared, load });
  return run.checkpoints === before ? null : made;
}

async function makeRoom(engine: Engine, run: TurnRun, prepared: ModelRequest): Promise<ModelRequest> {
  const { budget, stop } = prepared.window;
  const before = run.checkpoints;
  let load = await elide(engine, run, asNeeded(parts(run).old, prepared.load, stop), prepared.load);
  if (load > stop && engine.config.context.compaction.mode === 'summarize') load = await summarise(engine, run, load);
  if (load > budget) {
    const { old, recent } = parts(run);
    load = await elide(engine, run, asNeeded([...old, ...recent], load, budget), load);
  }
  if (run.checkpoints === before) return prepared;
  return { ...modelRequest(engine, run, prepared.request.system_prompt_volatile), load };
}

function parts(run: TurnRun) {
  return elidables(viewOf(run.history, run.checkpoints));
}

/** Takes the parts out of the view. Returns what the request then takes. */
async function elide(engine: Engine, run: TurnRun, taken: readonly Elidable[], tokensBefore: number): Promise<number> {
  if (taken.length === 0) return tokensBefore;
  const checkpoint: Elision = {
    id: engine.ids.next(),
    session_id: run.session.id,
    kind: 'elide',
    message_ids: taken.map((part) => part.message_id),
    tokens_before: tokensBefore,
    tokens_after: Math.max(0, tokensBefore - savedBy(taken)),
    created_at: engine.clock.now(),
  };
  await engine.journal.commit({
    writes: [{ kind: 'checkpoint.insert', checkpoint }],
    emit: [compactedEvent(run, checkpoint, taken.length)],
  });
  compacted(run, checkpoint);
  return checkpoint.tokens_after;
}
