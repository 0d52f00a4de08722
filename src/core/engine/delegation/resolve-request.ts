// The `delegate` call: its input checked against the calling session and turned into a request (04 §4, §5.1).
import { checkImages } from '#core/policy/context/image-blocks.ts';
import { contextIssue, parseDelegateInput, resolveContext } from '#core/policy/delegation/delegate-tool.ts';
import type { ContextItem, DelegateInput, DelegateRequest } from '#protocol/delegate.ts';
import type { Issue } from '#protocol/errors.ts';
import { type ContentBlock, type ImageBlock, joinText } from '#protocol/message.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import { ToolError } from '#protocol/tool.ts';
import { getFilesRoot, openSessionFiles } from '../definitions/session-files.ts';
import type { Caller } from '../state/delegation-runs.ts';
import type { DelegationEngine, WorkspaceAccess } from '../state/engine.ts';
import { resolveIsolation } from './choose-isolation.ts';
import { type EarlierWorker, findEarlierWorker } from './continue-worker.ts';
import { resolveCheck } from './resolve-check.ts';

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
  const { check, on_fail } = parsed.value;
  const checked = await resolveCheck(engine, run, { check, on_fail: on_fail ?? [], model: null, tier, effort });
  issues.push(...checked.issues);
  const earlier = await resolveEarlier(engine, run, parsed.value);
  if (!earlier.ok) return err([earlier.error]);
  // A worker goes on as it worked, so that what it left unapplied is there.
  const inherited = check === null ? earlier.value?.delegation.isolation : null;
  const isolation = parsed.value.isolation ?? inherited ?? null;
  const isolated = await resolveIsolation(engine, run, { ...parsed.value, isolation });
  issues.push(...isolated.issues);
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
      history: parsed.value.history ?? 'full',
      check: checked.check,
      on_fail: checked.on_fail,
      worker: null,
      attachments: [],
    },
    blocks: found.images,
    earlier: earlier.value,
    isolation_optional: isolated.is_optional,
  });
}

/** The worker that a call continues; null = none. */
export async function resolveEarlier(
  engine: DelegationEngine,
  run: Caller,
  { continue: id, history }: Pick<DelegateInput, 'continue' | 'history'>,
): Promise<Result<EarlierWorker | null, Issue>> {
  if (id !== null) return findEarlierWorker(engine, run, id);
  if (history !== null) return err({ path: 'history', message: 'needs `continue`: the id of a worker' });
  return ok(null);
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
