// Workers as the rooms below see them: one for a call that spawns it, and the end of those left open (04 §5, §13).

import type { ToolUseBlock } from '../../domain/message.ts';
import { ToolError } from '../../domain/tool.ts';
import { canonicalJson, sha256Hex } from '../../kernel/canonical-json.ts';
import type { WorkerSpawner } from '../../ports/spawner.ts';
import type { Engine } from '../state/engine.ts';
import type { TurnRun } from '../state/turn-run.ts';
import type { Workers } from '../state/workers.ts';
import { RESTART_TEXT } from '../tool-call/results.ts';
import { closeUnder } from './close-under.ts';
import { resolveRequest } from './delegate-input.ts';
import { resumeWorker } from './resume.ts';
import { spawnWorker } from './run-worker.ts';

/** @param engine of these workers, which is put together with them */
export function createWorkers(engine: () => Engine): Workers {
  return {
    spawner: (run, call) => createSpawner(engine(), run, call),
    closeUnder: (turnId, reason, only) => closeUnder(engine(), turnId, { reason, only: only ?? null }),
  };
}

/** The spawner of one call; null where the session is too deep to delegate (04 §11). */
function createSpawner(engine: Engine, run: TurnRun, call: ToolUseBlock): WorkerSpawner | null {
  if (run.session.delegation_depth >= engine.config.delegation.delegate_depth) return null;
  return {
    async check(input) {
      const resolved = await resolveRequest(engine, run, input);
      return resolved.ok ? [] : resolved.error;
    },
    async spawn(input) {
      const resolved = await resolveRequest(engine, run, input);
      const images = resolved.ok ? resolved.value.images : [];
      const known = run.resumed ? await resumeWorker(engine, run, call.id, images) : null;
      if (known) return known;
      // A person had edited the input before the restart; the one they turned down must not be delegated in its place.
      const called = run.called.get(call.id);
      if (called && called.input_hash !== sha256Hex(canonicalJson(input)))
        throw new ToolError('cancelled', RESTART_TEXT);
      // The workspace may have changed since the check, e.g. by an answer that took minutes.
      if (!resolved.ok)
        throw new ToolError('validation_error', resolved.error.map((i) => `${i.path}: ${i.message}`).join('\n'));
      return spawnWorker(engine, run, call.id, resolved.value);
    },
  };
}
