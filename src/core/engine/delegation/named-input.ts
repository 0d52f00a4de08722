// A call of a named worker: checked against the caller and turned into the request that every worker starts with (13 §1, §6).

import type { SharedFile } from '#core/ports/spawner.ts';
import type { CalledWorker, DelegateRequest } from '#protocol/delegate.ts';
import { ToolError } from '#protocol/tool.ts';
import type { FoundWorker } from '#protocol/worker/definition.ts';
import { readAttachments } from '../definitions/attachments.ts';
import { projectWorker } from '../definitions/find-worker.ts';
import { sessionWorker } from '../definitions/session-workers.ts';
import type { Engine } from '../state/engine.ts';
import type { Caller } from '../state/outside.ts';
import type { ResolvedRequest } from './delegate-input.ts';

type Input = Readonly<Record<string, unknown>>;

export interface NamedRequest extends ResolvedRequest {
  readonly shared: readonly SharedFile[];
}

/** Throws `ToolError` for a call that cannot be made: too deep, or of a worker that is not there or not valid. */
export async function resolveNamed(
  engine: Engine,
  run: Caller,
  { name, entry }: { readonly name: string; readonly entry: DelegateRequest['entry'] },
  input: Input,
): Promise<NamedRequest> {
  const { session } = run;
  refuseDepth(engine, run, name);
  const own = entry === 'worker_call' ? await sessionWorker(engine, session, name) : null;
  if (entry === 'worker_call' && own === null) throw await unknownWorker(engine, run, name);
  const { worker, schema } = callable(own ?? (await projectWorker(engine, session.workspace_path, name)), name);
  const { definition } = worker;
  const paths = (input.attachments as readonly string[] | undefined) ?? [];
  const { files, blocks } = await readAttachments(engine, session, definition, paths);
  return {
    request: {
      entry,
      tier: definition.tier,
      task: input.input as string,
      context_mode: 'minimal',
      context: [],
      output_schema: schema,
      allowed_tools: null,
      max_tokens: definition.max_tokens,
      timeout_seconds: definition.timeout_seconds,
      max_cost_usd: engine.config.delegation.worker_max_cost_usd,
      worker,
      attachments: files.map(({ absolute: _, ...file }) => file),
    },
    blocks,
    shared: files.map(({ path, absolute, bytes, sha256 }) => ({
      path,
      absolute,
      bytes,
      sha256,
      target_worker: worker.name,
    })),
  };
}

async function unknownWorker(engine: Engine, { session }: Caller, name: string): Promise<ToolError> {
  const names = (await engine.store.workers.list(session.root_session_id)).map((worker) => worker.name);
  const project = (await engine.library.names(session.workspace_path)).includes(name);
  const there = names.length === 0 ? 'this session has created none' : `created in this session: ${names.join(', ')}`;
  const hint = project ? `; '${name}' is a worker of the project, call the tool of that name` : '';
  return new ToolError('not_found', `no worker '${name.slice(0, 64)}' to call: ${there}${hint}`);
}

function refuseDepth(engine: Engine, { session }: Caller, target: string): void {
  const { max_depth } = engine.config.delegation;
  if (session.delegation_depth < max_depth) return;
  throw new ToolError(
    'permission_denied',
    `worker_depth_exceeded: workers may call each other ${max_depth} deep, this session is at depth ${session.delegation_depth}; '${target}' was not called`,
  );
}

/** The worker as it is called. Throws `ToolError('execution_error')` with everything that is wrong with it. */
export function callable(
  found: FoundWorker | null,
  name: string,
): { readonly worker: CalledWorker; readonly schema: Readonly<Record<string, unknown>> | null } {
  if (found === null) throw new ToolError('execution_error', `the worker '${name}' does not exist any more`);
  const { definition, instructions, digest, origin, errors } = found;
  if (errors.length > 0 || definition === null || instructions === null || digest === null) {
    const lines = errors.map(({ path, message }) => (path === '' ? message : `${path}: ${message}`));
    throw new ToolError(
      'execution_error',
      [`the definition of the worker '${name}' is not valid:`, ...lines].join('\n'),
    );
  }
  const worker = { name, origin, digest, definition, instructions, creator_tools: null };
  return { worker, schema: found.output_schema as Readonly<Record<string, unknown>> | null };
}
