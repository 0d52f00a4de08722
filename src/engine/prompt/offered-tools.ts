// Which tools a turn offers besides `delegate`, whose offer follows the routed model (09 §2, 04 §3.2).

import type { WireTool } from '../../domain/model-request.ts';
import type { SessionRecord } from '../../domain/session.ts';
import type { ToolDefinition } from '../../domain/tool.ts';
import { plannerTools } from '../../policy/delegation/worker-tools.ts';
import type { Engine } from '../state/engine.ts';

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

// Definitions never change, and adapters keep the text of each wire form by its identity.
const wireForms = new WeakMap<ToolDefinition, WireTool>();

/** What a provider is told of a tool; the same object every time. */
export function wireTool(tool: ToolDefinition): WireTool {
  let form = wireForms.get(tool);
  if (form === undefined) {
    form = { name: tool.name, description: tool.description, input_schema: tool.input_schema };
    wireForms.set(tool, form);
  }
  return form;
}
