// The `delegate` call: its input checked against the calling session and turned into a request (04 §4, §5.1).
import { checkImages } from '#core/policy/context/image-blocks.ts';
import { contextIssue, parseDelegateInput, resolveContext } from '#core/policy/delegation/delegate-tool.ts';
import type { SharedFile } from '#core/ports/tool-port.ts';
import type { CalledWorker, ContextItem, DelegateRequest } from '#protocol/delegate.ts';
import type { Issue } from '#protocol/errors.ts';
import { type ContentBlock, type ImageBlock, joinText } from '#protocol/message.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import { ToolError } from '#protocol/tool.ts';
import type { FoundWorker } from '#protocol/worker-definition.ts';
import { findProjectWorker, findSessionWorker } from '../definitions/find-workers.ts';
import { getFilesRoot, openSessionFiles, readAttachments } from '../definitions/session-files.ts';
import type { Caller } from '../state/delegation-runs.ts';
import type { DelegationEngine, Runtime, Storage, Toolbox, WorkspaceAccess } from '../state/engine.ts';
import { resolveIsolation } from './choose-isolation.ts';
import { type EarlierWorker, findEarlierWorker } from './continue-worker.ts';

type Input = Readonly<Record<string, unknown>>;

export interface ResolvedRequest {
  readonly request: DelegateRequest;
  /** Blocks behind the text of the worker's first message: images of referenced items, attachments (10 §8, 13 §5). */
  readonly blocks: readonly ContentBlock[];
  /** The worker that it continues. */
  readonly earlier: EarlierWorker | null;
  /** A worktree that no caller requested: the worker is shared where it cannot be made (20 §2). */
  readonly isolation_optional: boolean;
}

const IMAGE_SUFFIX = /\.(png|jpe?g|gif|webp)$/i;

export async function resolveRequest(
  engine: DelegationEngine,
  run: Caller,
  input: Input,
): Promise<Result<ResolvedRequest, readonly Issue[]>> {
  const parsed = parseDelegateInput(input);
  if (!parsed.ok) return parsed;
  const { tier, effort, task, context, output_schema, allowed_tools, max_tokens, timeout_seconds, max_cost_usd } =
    parsed.value;
  const issues: Issue[] = [];
  const continued = parsed.value.continue;
  const earlier = continued === null ? ok(null) : await findEarlierWorker(engine, run, continued);
  if (!earlier.ok) return err([earlier.error]);
  // A worker goes on as it worked, so that what it left unapplied is there.
  const isolation = parsed.value.isolation ?? earlier.value?.delegation.isolation ?? null;
  const isolated = await resolveIsolation(engine, run, { ...parsed.value, isolation });
  issues.push(...isolated.issues);
  if (parsed.value.background && isolated.apply === 'together')
    issues.push({ path: 'background', message: 'excludes apply "together": the calls would end before their workers' });
  if (output_schema !== null) {
    const compiled = engine.schemas.compile(output_schema);
    if (!compiled.ok)
      issues.push(...compiled.problems.map((p) => ({ path: `output_schema.${p.path}`, message: p.message })));
  }
  issues.push(...(await findOutsidePaths(engine, run, context.include)));
  const found = await collectReferences(engine, run, context.include);
  if (found.excess !== null) return err([...issues, found.excess]);
  const entries = resolveContext(context.include, {
    message: (id) => found.texts.get(id) ?? null,
    toolResult: (id) => found.texts.get(id) ?? null,
  });
  if (!entries.ok) issues.push(...entries.error);
  if (issues.length > 0 || !entries.ok) return err(issues);
  return ok({
    request: {
      entry: 'delegate',
      tier,
      effort,
      task,
      context_mode: context.mode,
      context: entries.value,
      // A named worker goes on to answer in its own form.
      output_schema: output_schema ?? earlier.value?.session.worker_definition?.output_schema ?? null,
      allowed_tools,
      max_tokens,
      timeout_seconds,
      max_cost_usd: max_cost_usd ?? engine.config.delegation.worker_max_cost_usd,
      isolation: isolated.isolation,
      apply: isolated.apply,
      background: parsed.value.background,
      worker: null,
      attachments: [],
    },
    blocks: found.images,
    earlier: earlier.value,
    isolation_optional: isolated.is_optional,
  });
}

/** A reference may only name what the caller itself may read. */
async function findOutsidePaths(
  engine: Pick<WorkspaceAccess, 'workspaces'>,
  run: Caller,
  include: readonly ContextItem[],
): Promise<Issue[]> {
  const files = openSessionFiles(engine, run.session);
  const issues: Issue[] = [];
  for (const [index, item] of include.entries()) {
    if (item.type !== 'file' && item.type !== 'file_range') continue;
    try {
      await files.resolve(item.path, 'read');
    } catch (error) {
      if (!(error instanceof ToolError)) throw error;
      issues.push(contextIssue(index));
    }
  }
  return issues;
}

interface References {
  /** Texts by id. */
  readonly texts: ReadonlyMap<string, string>;
  readonly images: readonly ImageBlock[];
  /** The item that exceeds the images of one message. */
  readonly excess: Issue | null;
}

/** Texts and images of the items that name messages, tool results and image files. */
async function collectReferences(
  engine: Pick<WorkspaceAccess, 'workspaces'>,
  run: Caller,
  include: readonly ContextItem[],
): Promise<References> {
  const texts = new Map<string, string>();
  const images: ImageBlock[] = [];
  for (const [index, item] of include.entries()) {
    if (item.type === 'message') {
      const message = run.history.find((m) => m.id === item.message_id);
      if (!message) continue;
      texts.set(item.message_id, joinText(message.content));
      images.push(...message.content.filter((b): b is ImageBlock => b.type === 'image'));
    } else if (item.type === 'tool_result') {
      const answer = run.history.find((m) => m.metadata.parent_tool_use_id === item.tool_use_id)?.content[0];
      if (answer?.type !== 'tool_result') continue;
      texts.set(item.tool_use_id, joinText(answer.content));
      images.push(...answer.content.filter((b): b is ImageBlock => b.type === 'image'));
    } else if (item.type === 'file' && IMAGE_SUFFIX.test(item.path)) {
      const image = await engine.workspaces.readImage(getFilesRoot(run.session), item.path);
      if (image) images.push(image);
    }
    const fault = checkImages(images);
    if (fault === null) continue;
    const message = `with this item the worker's first message ${fault}; leave items out or delegate in parts`;
    return { texts, images: [], excess: { path: `context.include[${index}]`, message } };
  }
  return { texts, images, excess: null };
}

// A call of a named worker: checked against the caller and turned into the request that starts every worker (13 §1, §6).

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
  const own = entry === 'worker_call' ? await findSessionWorker(engine, session, name) : null;
  if (entry === 'worker_call' && own === null) throw await unknownWorkerError(engine, run, name);
  const { worker, schema } = requireCallable(
    own ?? (await findProjectWorker(engine, session.workspace_path, name)),
    name,
  );
  const { definition } = worker;
  // A snapshot of a definition from before it had the field lacks it.
  const isolated = await resolveIsolation(engine, run, { isolation: definition.isolation ?? null, apply: null });
  if (isolated.issues.length > 0) throw new ToolError('validation_error', formatIssues(isolated.issues));
  const paths = (input.attachments as readonly string[] | undefined) ?? [];
  const { files, blocks } = await readAttachments(engine, session, definition, paths);
  return {
    request: {
      entry,
      tier: definition.tier,
      effort: definition.effort ?? null,
      task: input.input as string,
      context_mode: 'minimal',
      context: [],
      output_schema: schema,
      allowed_tools: null,
      max_tokens: definition.max_tokens,
      timeout_seconds: definition.timeout_seconds,
      max_cost_usd: engine.config.delegation.worker_max_cost_usd,
      isolation: isolated.isolation,
      apply: isolated.apply,
      background: input.background === true,
      worker,
      attachments: files.map(({ absolute: _, ...file }) => file),
    },
    blocks,
    earlier: null,
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

function formatIssues(issues: readonly Issue[]): string {
  return issues.map(({ path, message }) => `${path}: ${message}`).join('\n');
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
