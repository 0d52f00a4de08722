// The subject of an approval: a call, or a file that a call hands on; and what makes two subjects identical (09 §6.1, 13 §7).

import { summariseBill } from '#core/policy/delegation/delegation-bill.ts';
import { approvalPayload, commandSummary, inputSummary, projectedModifications } from '#core/policy/tools/approval.ts';
import type { ConfirmationRow } from '#core/ports/journal-writer.ts';
import type { SharedFile } from '#core/ports/tool-port.ts';
import { isoTime } from '#protocol/clock.ts';
import type { ToolConfirmationRequested } from '#protocol/event/tool-events.ts';
import type { ToolUseBlock } from '#protocol/message.ts';
import { canonicalJson, sha256Hex } from '#protocol/text/canonical-json.ts';
import { scrubValue } from '#protocol/text/scrub.ts';
import type { ToolDefinition } from '#protocol/tool.ts';
import type { DelegationBill } from '#protocol/what-if/cost-ahead.ts';
import { openSessionFiles } from '../definitions/session-files.ts';
import type { Runtime, WorkspaceAccess } from '../state/engine.ts';
import type { TurnPlan } from '../state/turn-run.ts';

type Covered = Pick<ToolDefinition, 'name' | 'side_effects' | 'group'>;

export interface Subject {
  /** Name of the subject in rules, trust entries and the configuration. */
  readonly covered: Covered;
  /** Key that two subjects share when they are the same for scope `identical` (13 §7.4). */
  readonly keyHash: string;
  /** The approval request as it is stored and published; its id and its deadline are made here. */
  row(): ConfirmationRow;
}

const SHARING: Covered = { name: 'sandbox.read', side_effects: 'read', group: 'sandbox.read' };

/** The call itself: its full arguments with real paths, and the content of the files that go with it. */
export async function describeCall(
  engine: Runtime & WorkspaceAccess,
  run: TurnPlan,
  call: ToolUseBlock,
  about: {
    readonly definition: ToolDefinition;
    readonly shared: readonly SharedFile[];
    readonly payload: Readonly<Record<string, unknown>> | null;
  },
): Promise<Subject> {
  const { session } = run;
  const { definition, shared } = about;
  const input: Record<string, unknown> = { ...call.input };
  if (definition.requires_workspace) {
    const files = openSessionFiles(engine, session);
    const resolvePathValue = async (value: unknown): Promise<unknown> => {
      if (typeof value === 'string') return (await files.resolve(value, 'list')).absolute;
      if (Array.isArray(value)) return Promise.all(value.map(resolvePathValue));
      return value;
    };
    for (const field of definition.path_fields) input[field] = await resolvePathValue(input[field]);
  }
  if (shared.length > 0) input.attachments = shared.map(({ absolute }) => absolute);
  const attachments = shared.map(({ sha256 }) => sha256);
  const keyHash = sha256Hex(
    canonicalJson({ tool: call.name, worker_digest: session.worker_digest, input, attachments }),
  );
  let payload = about.payload ?? approvalPayload(definition, call.input, engine.secrets);
  if (payload && shared.length > 0)
    payload = { ...payload, attachments: shared.map(({ path, bytes }) => ({ path, bytes })) };
  const row = () =>
    createApprovalRow(engine, run, call, {
      keyHash,
      input: call.input,
      request: {
        side_effects: definition.side_effects,
        input_summary: inputSummary(call.input, engine.secrets),
        projected_modifications: projectedModifications(definition, call.input),
        command_summary: commandSummary(definition, call.input, engine.secrets),
        rule: definition.group ?? null,
        payload,
        modifiable: true,
        allowed_scopes: definition.group === 'worker.create' ? ['once', 'identical'] : ['once', 'identical', 'always'],
      },
    });
  return { covered: definition, keyHash, row };
}

/** One file that the call hands on. */
export function describeSharing(engine: Runtime, run: TurnPlan, call: ToolUseBlock, file: SharedFile): Subject {
  const { path, absolute, bytes, sha256, target_worker } = file;
  const keyHash = sha256Hex(
    canonicalJson({
      rule: SHARING.name,
      worker_digest: run.session.worker_digest,
      input: { path: absolute, target_worker },
      attachments: [sha256],
    }),
  );
  const payload = { path, bytes, target_worker, sha256 };
  const row = () =>
    createApprovalRow(engine, run, call, {
      keyHash,
      input: payload,
      request: {
        side_effects: SHARING.side_effects,
        input_summary: inputSummary(payload, engine.secrets),
        projected_modifications: null,
        command_summary: null,
        rule: SHARING.name,
        payload,
        modifiable: false,
        allowed_scopes: ['once', 'identical'],
      },
    });
  return { covered: SHARING, keyHash, row };
}

/** All delegations of a message, as one request. @param call the first of them */
export function describeBill(
  engine: Runtime,
  run: TurnPlan,
  call: ToolUseBlock,
  bill: DelegationBill,
): ConfirmationRow {
  const { rows, p90_usd, ceiling_usd, compared_usd, tool_use_ids } = bill;
  return createApprovalRow(engine, run, call, {
    keyHash: null,
    input: { rows, p90_usd, ceiling_usd, compared_usd },
    request: {
      kind: 'delegations',
      tool_use_ids,
      side_effects: 'execute',
      input_summary: summariseBill(bill),
      projected_modifications: null,
      command_summary: null,
      rule: null,
      payload: { rows, p90_usd, ceiling_usd, compared_usd },
      modifiable: true,
      allowed_scopes: ['once'],
    },
  });
}

type RequestFields = Pick<
  ToolConfirmationRequested,
  | 'side_effects'
  | 'input_summary'
  | 'projected_modifications'
  | 'command_summary'
  | 'rule'
  | 'payload'
  | 'modifiable'
  | 'allowed_scopes'
> &
  Partial<Pick<ToolConfirmationRequested, 'kind' | 'tool_use_ids'>>;

function createApprovalRow(
  engine: Runtime,
  run: TurnPlan,
  call: ToolUseBlock,
  about: {
    readonly keyHash: string | null;
    readonly input: Readonly<Record<string, unknown>>;
    readonly request: RequestFields;
  },
): ConfirmationRow {
  const { session } = run;
  const now = engine.clock.now();
  const expires = now + engine.config.tool_confirmation.timeout_seconds * 1000;
  const id = engine.ids.confirmation();
  return {
    id,
    session_id: session.id,
    turn_id: run.turn.id,
    root_session_id: session.root_session_id,
    tool_use_id: call.id,
    tool_name: call.name,
    rule: about.request.rule,
    key_hash: about.keyHash,
    request: {
      kind: 'tool',
      tool_use_ids: [],
      tool_use_id: call.id,
      tool_name: call.name,
      ...scrubValue(about.request, engine.secrets),
      confirmation_request_id: id,
      expires_at: isoTime(expires),
      is_worker: session.is_worker,
      parent_session_id: session.parent_session_id,
      root_session_id: session.root_session_id,
      worker_name: session.worker_name,
    },
    input: about.input,
    requested_at: now,
    expires_at: expires,
  };
}
