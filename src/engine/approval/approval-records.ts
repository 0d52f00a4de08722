// One approval as a row and as its two events, and what makes two calls identical (09 §6.1, 13 §7.4).
import type { Answer } from '../../domain/confirmation.ts';
import type { ToolConfirmationRequested } from '../../domain/event/tool.ts';
import { draft, type EventDraft } from '../../domain/event.ts';
import type { ToolUseBlock } from '../../domain/message.ts';
import type { ToolDefinition } from '../../domain/tool.ts';
import { canonicalJson, sha256Hex } from '../../kernel/canonical-json.ts';
import { isoTime } from '../../kernel/clock.ts';
import type { EventId } from '../../kernel/ids.ts';
import { commandSummary, inputSummary, projectedModifications } from '../../policy/tools/approval.ts';
import type { ConfirmationRow } from '../../ports/journal.ts';
import type { Engine } from '../state/engine.ts';
import type { TurnRun } from '../state/turn-run.ts';

/** What makes two calls the same for scope `identical`: the full arguments with real paths (13 §7.4). */
export async function identityOf(
  engine: Engine,
  run: TurnRun,
  call: ToolUseBlock,
  definition: ToolDefinition,
): Promise<string> {
  const input: Record<string, unknown> = { ...call.input };
  if (definition.requires_workspace) {
    const files = engine.workspaces.files(run.session.workspace_path);
    const real = async (value: unknown) =>
      typeof value === 'string' ? (await files.resolve(value, 'list')).absolute : value;
    for (const field of definition.path_fields) {
      const value = input[field];
      input[field] = Array.isArray(value) ? await Promise.all(value.map(real)) : await real(value);
    }
  }
  return sha256Hex(
    canonicalJson({ tool: call.name, worker_digest: run.session.worker_digest, input, attachments: [] }),
  );
}

/** The question as it is stored and asked; its id and its deadline are made here. */
export function confirmationRow(
  engine: Engine,
  run: TurnRun,
  call: ToolUseBlock,
  { definition, keyHash }: { readonly definition: ToolDefinition; readonly keyHash: string },
): ConfirmationRow {
  const { session } = run;
  const now = engine.clock.now();
  const expires = now + engine.config.tool_confirmation.timeout_seconds * 1000;
  const id = engine.ids.confirmation();
  const payload: ToolConfirmationRequested = {
    tool_use_id: call.id,
    tool_name: call.name,
    side_effects: definition.side_effects,
    confirmation_request_id: id,
    input_summary: inputSummary(call.input, { secrets: engine.secrets, workspace: session.workspace_path }),
    projected_modifications: projectedModifications(definition, call.input),
    command_summary: commandSummary(definition, call.input),
    expires_at: isoTime(expires),
    is_worker: session.is_worker,
    parent_session_id: session.parent_session_id,
    root_session_id: session.root_session_id,
    worker_name: session.worker_name,
    rule: null,
    payload: null,
    modifiable: true,
    allowed_scopes: ['once', 'identical', 'always'],
  };
  return {
    id,
    session_id: session.id,
    turn_id: run.turn.id,
    root_session_id: session.root_session_id,
    tool_use_id: call.id,
    tool_name: call.name,
    rule: null,
    key_hash: keyHash,
    request: payload,
    input: call.input,
    requested_at: now,
    expires_at: expires,
  };
}

export function requested(run: TurnRun, row: ConfirmationRow): EventDraft {
  return draft({
    type: 'tool.confirmation_requested',
    session_id: row.session_id,
    turn_id: row.turn_id,
    parent: run.call_event_id,
    payload: row.request,
  });
}

export function resolved(
  row: ConfirmationRow,
  parent: EventId | number | null,
  answer: Pick<Answer, 'decision' | 'scope'>,
  by: 'user' | 'policy',
): EventDraft {
  return draft({
    type: 'tool.confirmation_resolved',
    session_id: row.session_id,
    turn_id: row.turn_id,
    parent,
    ...(by === 'policy' ? { actor: 'system' as const } : {}),
    payload: {
      tool_use_id: row.tool_use_id,
      confirmation_request_id: row.id,
      decision: answer.decision,
      scope: answer.scope,
      resolved_by: by,
    },
  });
}
