// Which tools a turn offers: those that spawn a worker follow the routed model (09 §2, 04 §3.2).

import type { ModelEntry } from '../../domain/model.ts';
import type { WireTool } from '../../domain/model-request.ts';
import type { SessionRecord } from '../../domain/session.ts';
import type { ToolDefinition } from '../../domain/tool.ts';
import { offersDelegate, plannerTools } from '../../policy/delegation/worker-tools.ts';
import type { ToolSet } from '../../ports/tool.ts';
import type { Engine } from '../state/engine.ts';

/**
 * Without the tools that spawn a worker.
 * @param granted for a worker: the names of its delegation
 */
export function baseTools(
  engine: Engine,
  session: Pick<SessionRecord, 'is_worker'>,
  { toolset, granted }: { readonly toolset: ToolSet; readonly granted: readonly string[] | null },
): readonly ToolDefinition[] {
  const registered = toolset.definitions();
  const names = new Set(
    session.is_worker
      ? granted
      : plannerTools({ registered, disabled: engine.config.tools.disabled, offerDelegate: false }),
  );
  // A delegation that is older than the rule does not get round it.
  return registered.filter((t) => names.has(t.name) && !t.spawns && !(t.planners_only && session.is_worker));
}

/** The tools that spawn a worker, whoever may be offered them. */
export function spawningTools(toolset: ToolSet): readonly ToolDefinition[] {
  return toolset.definitions().filter((tool) => tool.spawns);
}

/** Everything the turn offers once its model is known, sorted by name; `tools` are its base tools. */
export function offeredTools(
  engine: Engine,
  session: SessionRecord,
  turn: {
    readonly toolset: ToolSet;
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
  return [...turn.tools, ...spawningTools(turn.toolset)].sort((a, b) => (a.name < b.name ? -1 : 1));
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
