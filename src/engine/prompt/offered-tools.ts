// Which tools a turn offers: those that spawn a worker follow the routed model (09 §2, 04 §3.2).

import type { ModelEntry } from '../../domain/model.ts';
import type { WireTool } from '../../domain/model-request.ts';
import type { SessionRecord } from '../../domain/session.ts';
import type { ToolDefinition } from '../../domain/tool.ts';
import { offersDelegate, plannerTools } from '../../policy/delegation/worker-tools.ts';
import type { Engine } from '../state/engine.ts';

/**
 * Without the tools that spawn a worker.
 * @param granted for a worker: the names of its delegation
 */
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
  return registered.filter((t) => names.has(t.name) && !t.spawns);
}

/** The tools that spawn a worker, whoever may be offered them. */
export function spawningTools(engine: Engine): readonly ToolDefinition[] {
  return engine.tools.definitions().filter((tool) => tool.spawns);
}

/** Everything the turn offers once its model is known, sorted by name; `tools` are its base tools. */
export function offeredTools(
  engine: Engine,
  session: SessionRecord,
  turn: {
    readonly tools: readonly ToolDefinition[];
    readonly model: ModelEntry;
    readonly granted: readonly string[] | null;
  },
): readonly ToolDefinition[] {
  const offered = offersDelegate({
    depth: session.delegation_depth,
    delegateDepth: engine.config.delegation.delegate_depth,
    model: turn.model,
    disabled: engine.config.tools.disabled,
    granted: turn.granted,
  });
  if (!offered) return turn.tools;
  return [...turn.tools, ...spawningTools(engine)].sort((a, b) => (a.name < b.name ? -1 : 1));
}

// Definitions never change, and adapters keep the text of each wire form by its identity.
const wireForms = new WeakMap<ToolDefinition, WireTool>();

/** A tool as a provider sees it; the same object every time. */
export function wireTool(tool: ToolDefinition): WireTool {
  let form = wireForms.get(tool);
  if (form === undefined) {
    form = { name: tool.name, description: tool.description, input_schema: tool.input_schema };
    wireForms.set(tool, form);
  }
  return form;
}
