// Checks a caller's message and makes it self-contained: files are read once, here (10 §8, 05 §3.2 step 3).
import { checkImage, checkImages, MAX_IMAGES } from '#core/policy/context/image-blocks.ts';
import { parseOverride } from '#core/policy/routing/override.ts';
import type { Write } from '#core/ports/journal-writer.ts';
import { type Awaitable, continueWith, gatherAll } from '#protocol/async/awaitable.ts';
import { isoTime } from '#protocol/clock.ts';
import { AppError, type Issue, validationError } from '#protocol/errors.ts';
import type { TurnId } from '#protocol/ids.ts';
import { JournalConflict } from '#protocol/journal-batch.ts';
import {
  type ContentBlock,
  type ImageBlock,
  joinText,
  plainMetadata,
  type StoredMessage,
  type TextBlock,
  textBlock,
} from '#protocol/message.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { plainText } from '#protocol/text/plain-text.ts';
import { ToolError } from '#protocol/tool.ts';
import { MAX_TURN_INPUTS, type TurnRecord } from '#protocol/turn.ts';
import { readAttachments } from '../definitions/session-files.ts';
import { sessionEndedError, sessionIsWorkerError } from '../session/session-records.ts';
import type { Delegations, LiveSessions, ModelCatalog, Runtime, Storage, WorkspaceAccess } from '../state/engine.ts';

/** A block as the caller sends it. */
export type IntakeBlock = TextBlock | IntakeImage;

/** The image's bytes, or with `file_ref` a path in the workspace. */
interface IntakeImage extends Pick<ImageBlock, 'type' | 'media_type'> {
  readonly source: { readonly kind: 'base64' | 'file_ref'; readonly data: string };
}

const MAX_BLOCKS = 100;

/** A message ready to be stored. */
export interface PreparedMessage {
  readonly content: readonly ContentBlock[];
  /** Canonical id. */
  readonly override: string | null;
}

/**
 * Form, images and override: every check of a message, before anything changes.
 * Throws `validation_error` that names the block, `unknown_alias` or `override_missing_body`.
 */
export function prepareMessage(
  engine: ModelCatalog & WorkspaceAccess,
  session: SessionRecord,
  message: {
    readonly content: string | readonly IntakeBlock[];
    readonly per_message_override: string | null;
    /** Files of the workspace, for a session that is a named worker (13 §5). */
    readonly attachments?: readonly string[];
  },
): Awaitable<PreparedMessage> {
  return continueWith(readBlocks(engine, session, message.content), (blocks) =>
    continueWith(readAttachedFiles(engine, session, message.attachments ?? []), (files) => {
      const content = [...blocks, ...files];
      const excess = checkImages(listImages(content));
      if (excess !== null) throw validationError([{ path: 'attachments', message: `with them the message ${excess}` }]);
      const { registry } = engine;
      const parsed = parseOverride({ content, field: message.per_message_override, registry });
      if (!parsed.ok) throw new AppError(parsed.error.code, parsed.error.message);
      return parsed.value;
    }),
  );
}

const listImages = (blocks: readonly ContentBlock[]) => blocks.filter((b): b is ImageBlock => b.type === 'image');

function readAttachedFiles(
  engine: Pick<WorkspaceAccess, 'workspaces'>,
  session: SessionRecord,
  paths: readonly string[],
): Awaitable<readonly ContentBlock[]> {
  if (paths.length === 0) return [];
  const named = session.worker_definition;
  if (named === null)
    throw validationError([
      { path: 'attachments', message: 'belong to a session with a worker; send text and image blocks' },
    ]);
  return readFilesOfWorker(engine, session, named, paths);
}

async function readFilesOfWorker(
  engine: Pick<WorkspaceAccess, 'workspaces'>,
  session: SessionRecord,
  named: NonNullable<SessionRecord['worker_definition']>,
  paths: readonly string[],
): Promise<readonly ContentBlock[]> {
  // The caller chooses the files: the worker's policy holds, its sandboxes are for its own tools.
  const caller = { workspace_path: session.workspace_path, tree_path: session.tree_path, worker_definition: null };
  try {
    return (await readAttachments(engine, caller, named.definition, paths)).blocks;
  } catch (error) {
    if (!(error instanceof ToolError)) throw error;
    const boxes = Object.keys(named.definition.sandboxes);
    const own = paths.some((path) => boxes.includes(path.split(/[/\\]/, 1)[0] ?? ''));
    const hint = own ? "; paths are of the workspace here, not of the worker's sandboxes" : '';
    throw validationError([{ path: 'attachments', message: `${error.message}${hint}` }]);
  }
}

function readBlocks(
  engine: Pick<WorkspaceAccess, 'workspaces'>,
  session: SessionRecord,
  content: string | readonly IntakeBlock[],
): Awaitable<readonly ContentBlock[]> {
  const given: readonly IntakeBlock[] = typeof content === 'string' ? [{ type: 'text', text: content }] : content;
  if (given.length < 1 || given.length > MAX_BLOCKS)
    throw validationError([{ path: 'content', message: `must have 1 to ${MAX_BLOCKS} blocks` }]);
  // Checked before a file is read: the model may not accept it.
  if (given.filter((b) => b.type === 'image').length > MAX_IMAGES)
    throw validationError([{ path: 'content', message: `holds more than ${MAX_IMAGES} images` }]);
  const read = given.map((block) =>
    block.type === 'text' ? textBlock(plainText(block.text)) : readImage(engine, session, block),
  );
  return continueWith(gatherAll(read), checkBlocks);
}

/** @param read the blocks, or the fault of an image */
function checkBlocks(read: readonly (ContentBlock | string)[]): readonly ContentBlock[] {
  const blocks = read.filter((block) => typeof block !== 'string');
  const issues: Issue[] = read.flatMap((block, index) =>
    typeof block === 'string' ? [{ path: `content.${index}`, message: block }] : [],
  );
  const excess = checkImages(listImages(blocks));
  if (excess !== null) issues.push({ path: 'content', message: excess });
  if (issues.length > 0) throw validationError(issues);
  if (!blocks.some((b) => b.type === 'image' || (b.type === 'text' && b.text.trim() !== '')))
    throw validationError([{ path: 'content', message: 'must hold a non-blank text or an image' }]);
  return blocks;
}

/** The image as a base64 block, or its error. */
async function readImage(
  engine: Pick<WorkspaceAccess, 'workspaces'>,
  session: SessionRecord,
  { source: { kind, data }, media_type }: IntakeImage,
): Promise<ImageBlock | string> {
  if (kind === 'base64') return checkImage(data, media_type) ?? { type: 'image', source: { kind, data }, media_type };
  const read = await engine.workspaces.readImage(session.workspace_path, data);
  if (read === null)
    return `${data} is not a readable PNG, JPEG, GIF or WebP image of at most 5 MiB and 8000 pixels a side inside the workspace`;
  if (read.media_type === media_type) return read;
  return `${data} is ${read.media_type}, not ${media_type}`;
}

// A message for a running turn: stored at once, read at its next step boundary (20 §4).

const MAX_CHARACTERS = 20_000;

/** The response to a message that joined a turn. */
export interface SteeringReceipt {
  readonly turn_id: TurnId;
  readonly session_id: SessionRecord['id'];
  readonly submitted_at: string;
  readonly user_message_id: null;
  readonly steered: true;
  readonly input_id: string;
}

/** Throws `validation_error` for content that no running turn can take, whether one runs or not. */
export function checkSteering({ content, override }: PreparedMessage, attachments: readonly string[]): void {
  const issues: Issue[] = [];
  if (attachments.length > 0) issues.push({ path: 'attachments', message: 'cannot steer a turn' });
  else if (content.some((block) => block.type !== 'text'))
    issues.push({ path: 'content', message: 'must be text alone to steer a turn' });
  else if ([...joinText(content)].length > MAX_CHARACTERS)
    issues.push({ path: 'content', message: `must have at most ${MAX_CHARACTERS} characters to steer a turn` });
  if (override !== null)
    issues.push({ path: 'per_message_override', message: 'a steered message runs on the model of its turn' });
  if (issues.length > 0) throw validationError(issues);
}

/**
 * Passes the message to the session's open turn. Null when no turn is open: the session's lock is then held for
 * `turnId`, and an ordinary turn may start. Waits for a turn that is being cancelled or admitted.
 * Throws `session_is_worker`, `session_already_ended`, or `turn_in_flight` when too many messages wait.
 */
export async function steerOrTakeLock(
  engine: Runtime & Storage & LiveSessions & Delegations,
  session: SessionRecord,
  message: PreparedMessage & {
    readonly turnId: TurnId;
    readonly claim: ((status: number, body: unknown) => Write) | undefined;
  },
): Promise<SteeringReceipt | null> {
  for (;;) {
    const turn = await engine.store.turns.open(session.id);
    const running = turn && engine.locks.turn(turn.id);
    const takes = turn && (turn.status === 'interrupted' || running?.scope.signal.aborted === false);
    if (takes) {
      const receipt = await joinTurn(engine, session, turn, message);
      if (receipt !== null) return receipt;
      continue;
    }
    if (engine.ending.has(session.id)) throw sessionEndedError();
    if (session.is_worker) throw sessionIsWorkerError();
    const lock = engine.locks.tryTake(session.id, message.turnId);
    if (!lock.held) return null;
    await (lock.turn?.done ?? engine.locks.whenDecided(session.id));
  }
}

/** Null when the turn has ended meanwhile. */
async function joinTurn(
  engine: Runtime & Storage & Delegations,
  session: SessionRecord,
  turn: TurnRecord,
  { content, claim }: Parameters<typeof steerOrTakeLock>[2],
): Promise<SteeringReceipt | null> {
  const submitted = engine.clock.now();
  const receipt: SteeringReceipt = {
    turn_id: turn.id,
    session_id: session.id,
    submitted_at: isoTime(submitted),
    user_message_id: null,
    steered: true,
    input_id: engine.ids.next(),
  };
  const input = {
    id: receipt.input_id,
    session_id: session.id,
    turn_id: turn.id,
    content: content.filter((block) => block.type === 'text').map(({ text }) => textBlock(text)),
    submitted_at: submitted,
  };
  try {
    await engine.journal.commit({
      writes: [{ kind: 'turn_input.insert', input }, ...(claim ? [claim(202, receipt)] : [])],
      emit: [],
    });
    engine.background.wake(turn.id);
    return receipt;
  } catch (error) {
    if (!(error instanceof JournalConflict)) throw error;
    if (error.code === 'turn_closed') return null;
    if (error.code === 'inputs_full')
      throw new AppError('turn_in_flight', `${MAX_TURN_INPUTS} messages wait for this turn already; send it later`, {
        current_turn_id: turn.id,
      });
    throw error;
  }
}

/** The message as it is stored with its turn. */
export function newUserMessage(
  engine: Pick<Runtime, 'ids'>,
  session: SessionRecord,
  message: { readonly turn_id: TurnId; readonly content: readonly ContentBlock[]; readonly now: number },
): StoredMessage {
  return {
    id: engine.ids.message(),
    session_id: session.id,
    turn_id: message.turn_id,
    role: 'user',
    content: [...message.content],
    metadata: plainMetadata(),
    created_at: isoTime(message.now),
    provider_raw: null,
  };
}
