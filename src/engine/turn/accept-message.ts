// What a caller may send in a message, checked and made self-contained: files are read once, here (10 §8, 05 §3.2 step 3).
import { type ContentBlock, type ImageBlock, type TextBlock, textBlock } from '../../domain/message.ts';
import type { SessionRecord } from '../../domain/session.ts';
import { AppError, type Issue, validationError } from '../../kernel/errors.ts';
import { plainText } from '../../kernel/plain-text.ts';
import { checkImage, checkImages, MAX_IMAGES } from '../../policy/context/images.ts';
import { parseOverride } from '../../policy/routing/override.ts';
import type { Engine } from '../state/engine.ts';

/** A block as it arrives: `file_ref` names an image in the workspace. */
export type IntakeBlock =
  | TextBlock
  | ImageBlock
  | {
      readonly type: 'image';
      readonly source: { readonly kind: 'file_ref'; readonly data: string };
      readonly media_type: string;
    };

const MAX_BLOCKS = 100;

/** A message ready to be stored. */
export interface TakenMessage {
  readonly content: readonly ContentBlock[];
  /** Canonical id. */
  readonly override: string | null;
}

/**
 * Form, images and override: everything that can be wrong with a message before something is touched.
 * Throws `validation_error` that names the block, `unknown_alias` or `override_missing_body`.
 */
export async function takeMessage(
  engine: Engine,
  session: SessionRecord,
  message: { readonly content: string | readonly IntakeBlock[]; readonly per_message_override: string | null },
): Promise<TakenMessage> {
  const content = [...(await takeIn(engine, session, message.content))];
  const { registry } = engine;
  const parsed = parseOverride({ content, field: message.per_message_override, registry });
  if (!parsed.ok) throw new AppError(parsed.error.code, parsed.error.message);
  return parsed.value;
}

async function takeIn(
  engine: Engine,
  session: SessionRecord,
  content: string | readonly IntakeBlock[],
): Promise<readonly ContentBlock[]> {
  const given: readonly IntakeBlock[] = typeof content === 'string' ? [{ type: 'text', text: content }] : content;
  const issues: Issue[] = [];
  if (given.length < 1 || given.length > MAX_BLOCKS)
    throw validationError([{ path: 'content', message: `must have 1 to ${MAX_BLOCKS} blocks` }]);
  // Before a file is read for one of them.
  if (given.filter((b) => b.type === 'image').length > MAX_IMAGES)
    throw validationError([{ path: 'content', message: `holds more than ${MAX_IMAGES} images` }]);
  const blocks: ContentBlock[] = [];
  for (const [index, block] of given.entries()) {
    const path = `content.${index}`;
    if (block.type === 'text') blocks.push(textBlock(plainText(block.text)));
    else {
      const image = await readImage(engine, session, block);
      if (typeof image === 'string') issues.push({ path, message: image });
      else blocks.push(image);
    }
  }
  const images = blocks.filter((b): b is ImageBlock => b.type === 'image');
  const excess = checkImages(images);
  if (excess !== null) issues.push({ path: 'content', message: excess });
  if (issues.length > 0) throw validationError(issues);
  if (!blocks.some((b) => b.type === 'image' || (b.type === 'text' && b.text.trim() !== '')))
    throw validationError([{ path: 'content', message: 'must hold a non-blank text or an image' }]);
  return blocks;
}

/** The image as a base64 block, or what is wrong with it. */
async function readImage(
  engine: Engine,
  session: SessionRecord,
  block: Extract<IntakeBlock, { type: 'image' }>,
): Promise<ImageBlock | string> {
  if (block.source.kind === 'base64') {
    const image: ImageBlock = {
      type: 'image',
      source: { kind: 'base64', data: block.source.data },
      media_type: block.media_type,
    };
    return checkImage(image.source.data, image.media_type) ?? image;
  }
  const read = await engine.workspaces.readImage(session.workspace_path, block.source.data);
  if (read === null)
    return `${block.source.data} is not a readable PNG, JPEG, GIF or WebP image of at most 5 MiB inside the workspace`;
  return read.media_type === block.media_type
    ? read
    : `${block.source.data} is ${read.media_type}, not ${block.media_type}`;
}
