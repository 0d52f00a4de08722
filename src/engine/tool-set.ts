// Which tools a turn offers besides `delegate`, whose offer follows the routed model (09 §2, 04 §3.2).
import type { SessionRecord } from '../domain/session.ts';
import type { ToolDefinition } from '../domain/tool.ts';
import { plannerTools } from '../policy/delegation/worker-tools.ts';
import type { Engine } from './context.ts';

/** @param granted for a worker: the names of its delegation */
export function baseTools(
  engine: Engine,
  session: SessionRecord,
  granted: readonly string[] | null,
): readonly ToolDefinition[] {
  const registered = engine.tools.definitions();
  const names = new Set(
    session.is_worker
      ? granted
      : plannerTools({ registered, disabled: engine.config.tools.disabled, offerDelegate: false }),
  );
  return registered.filter((t) => names.has(t.name) && t.name !== 'delegate');
}
