// A call of a named worker: checked against the caller and turned into the request that starts every worker (13 §1, §6).
import { describeIssues } from '#core/policy/parsing/plain-issue.ts';
import type { SharedFile } from '#core/ports/tool-port.ts';
import {
  type CalledWorker,
  type DelegateInput,
  DelegateInputSchema,
  type DelegateRequest,
} from '#protocol/delegate.ts';
import type { Issue } from '#protocol/errors.ts';
import { plainText } from '#protocol/text/plain-text.ts';
import { ToolError } from '#protocol/tool.ts';
import type { FoundWorker, WorkerDefinition } from '#protocol/worker-definition.ts';
import { findProjectWorker, findSessionWorker } from '../definitions/find-workers.ts';
import { readAttachments } from '../definitions/session-files.ts';
import type { Caller } from '../state/delegation-runs.ts';
import type { DelegationEngine, Runtime, Storage, Toolbox } from '../state/engine.ts';
import { type ChosenIsolation, resolveIsolation } from './choose-isolation.ts';
import type { EarlierWorker } from './continue-worker.ts';
import { resolveNamedCheck } from './resolve-check.ts';
import { type ResolvedRequest, resolveEarlier } from './resolve-request.ts';

type Input = Readonly<Record<string, unknown>>;

/** The options that a call of a named worker shares with `delegate`. */
const NamedOptionsSchema = DelegateInputSchema.pick({
  continue: true,
  history: true,
  isolation: true,
  apply: true,
  background: true,
});

/** A call with options that cannot be had. */
export class InvalidOptions extends ToolError {
  readonly issues: readonly Issue[];

  constructor(issues: readonly Issue[]) {
    super('validation_error', issues.map(({ path, message }) => `${path}: ${message}`).join('\n'));
    this.issues = issues;
  }
}

export interface NamedRequest extends ResolvedRequest {
  readonly shared: readonly SharedFile[];
}

/** Throws `ToolError` for a call that is nested too deeply, or whose worker is missing or invalid. */
export async function resolveNamedRequest(
  engine: DelegationEngine,
  run: Caller,
  { name, entry }: { readonly name: string; readonly entry: DelegateRequest['entry'] },
  input: Input,
): Promise<NamedRequest> {
  const { session } = run;
  requireDepth(engine, run, name);
  const task = readTask(input);
  const own = entry === 'worker_call' ? await findSessionWorker(engine, session, name) : null;
  if (entry === 'worker_call' && own === null) throw await unknownWorkerError(engine, run, name);
  const found = requireCallable(own ?? (await findProjectWorker(engine, session.workspace_path, name)), name);
  const asked = readNamedOptions(input);
  const earlier = await resolveEarlierNamed(engine, run, name, asked);
  const { worker, schema } = earlier === null ? found : useEarlierDefinition(found, earlier);
  const { definition } = worker;
  const isolated = await resolveNamedIsolation(engine, run, { definition, earlier, asked });
  const checked = await resolveNamedCheck(engine, run, definition);
  if (checked.issues.length > 0) throw new InvalidOptions(checked.issues);
  const paths = (input.attachments as readonly string[] | undefined) ?? [];
  const { files, blocks } = await readAttachments(engine, session, definition, paths);
  return {
    request: {
      entry,
      tier: definition.tier,
      effort: definition.effort ?? null,
      task,
      context_mode: 'minimal',
      context: [],
      output_schema: schema,
      allowed_tools: null,
      max_tokens: definition.max_tokens,
      timeout_seconds: definition.timeout_seconds,
      max_cost_usd: engine.config.delegation.worker_max_cost_usd,
      isolation: isolated.isolation,
      apply: isolated.apply,
      background: asked.background,
      history: asked.history ?? 'full',
      check: checked.check,
      on_fail: checked.on_fail,
      worker,
      attachments: files.map(({ absolute: _, ...file }) => file),
    },
    blocks,
    earlier,
    isolation_optional: isolated.is_optional,
    shared: files.map(({ path, absolute, bytes, sha256 }) => ({
      path,
      absolute,
      bytes,
      sha256,
      target_worker: worker.name,
    })),
  };
}

/** Throws `InvalidOptions` for a task that no provider takes. */
function readTask({ input }: Input): string {
  const task = plainText(String(input));
  if (task.trim() === '') throw new InvalidOptions([{ path: 'input', message: 'must not be blank' }]);
  return task;
}

type NamedOptions = Pick<DelegateInput, 'continue' | 'history' | 'isolation' | 'apply' | 'background'>;
type Callable = ReturnType<typeof requireCallable>;

function readNamedOptions({
  continue: id = null,
  history = null,
  isolation = null,
  apply = null,
  background,
}: Input): NamedOptions {
  const parsed = NamedOptionsSchema.safeParse({ continue: id, history, isolation, apply, background });
  if (parsed.success) return parsed.data;
  throw new InvalidOptions(
    describeIssues(parsed.error).map(({ path, message }) => ({ path: path.join('.'), message })),
  );
}

/** Throws `ToolError` for a worker that cannot be continued by this name. */
async function resolveEarlierNamed(
  engine: DelegationEngine,
  run: Caller,
  name: string,
  asked: NamedOptions,
): Promise<EarlierWorker | null> {
  const earlier = await resolveEarlier(engine, run, asked);
  if (!earlier.ok) throw new InvalidOptions([earlier.error]);
  if (earlier.value === null || earlier.value.session.worker_name === name) return earlier.value;
  const message = `${asked.continue} is no worker '${name}'; continue it with the tool that started it, or with delegate`;
  throw new InvalidOptions([{ path: 'continue', message }]);
}

/** A worker goes on by the definition that it began with. */
function useEarlierDefinition({ worker, schema }: Callable, { session }: EarlierWorker): Callable {
  const { worker_definition: known, worker_digest, system_prompt } = session;
  if (known === null) return { worker, schema };
  const { definition, output_schema } = known;
  const digest = worker_digest ?? worker.digest;
  return {
    worker: { ...worker, digest, definition, instructions: system_prompt ?? worker.instructions },
    schema: output_schema,
  };
}

async function resolveNamedIsolation(
  engine: DelegationEngine,
  run: Caller,
  {
    definition,
    earlier,
    asked,
  }: {
    readonly definition: WorkerDefinition;
    readonly earlier: EarlierWorker | null;
    readonly asked: NamedOptions;
  },
): Promise<ChosenIsolation> {
  // A snapshot of a definition from before it had the field lacks it.
  const fixed = definition.isolation ?? null;
  const { apply, background } = asked;
  if (fixed !== null && asked.isolation !== null && asked.isolation !== fixed)
    throw new InvalidOptions([{ path: 'isolation', message: `is "${fixed}" by the definition of the worker` }]);
  const { check = null } = definition;
  const inherited = check === null ? (earlier?.delegation.isolation ?? null) : null;
  const isolation = asked.isolation ?? inherited ?? fixed;
  const isolated = await resolveIsolation(engine, run, { isolation, apply, check, background });
  if (isolated.issues.length > 0) throw new InvalidOptions(isolated.issues);
  return isolated;
}

async function unknownWorkerError(engine: Storage & Toolbox, { session }: Caller, name: string): Promise<ToolError> {
  const names = (await engine.store.workers.list(session.root_session_id)).map((worker) => worker.name);
  const project = (await engine.library.names(session.workspace_path)).includes(name);
  let message = `no worker '${name.slice(0, 64)}' to call: this session has created none`;
  if (names.length > 0)
    message = `no worker '${name.slice(0, 64)}' to call: created in this session: ${names.join(', ')}`;
  if (project) message += `; '${name}' is a worker of the project, call the tool of that name`;
  return new ToolError('not_found', message);
}

function requireDepth(engine: Pick<Runtime, 'config'>, { session }: Caller, target: string): void {
  const { max_depth } = engine.config.delegation;
  if (session.delegation_depth < max_depth) return;
  throw new ToolError(
    'permission_denied',
    `worker_depth_exceeded: workers may call each other ${max_depth} deep, this session is at depth ${session.delegation_depth}; '${target}' was not called`,
  );
}

/** The worker that is called. Throws `ToolError('execution_error')` with all its errors. */
function requireCallable(
  found: FoundWorker | null,
  name: string,
): { readonly worker: CalledWorker; readonly schema: Readonly<Record<string, unknown>> | null } {
  if (found === null) throw new ToolError('execution_error', `the worker '${name}' does not exist any more`);
  const { definition, instructions, digest, origin, errors } = found;
  if (errors.length > 0 || definition === null || instructions === null || digest === null) {
    const lines = errors.map(({ path, message }) => [path, message].filter((part) => part !== '').join(': '));
    throw new ToolError(
      'execution_error',
      [`the definition of the worker '${name}' is not valid:`, ...lines].join('\n'),
    );
  }
  const worker = { name, origin, digest, definition, instructions, creator_tools: null };
  return { worker, schema: found.output_schema as Readonly<Record<string, unknown>> | null };
}
