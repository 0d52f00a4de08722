// Checks files that are passed to a worker, and converts each to a block for its model (13 §5).
import { type ContentBlock, type ImageBlock, textBlock } from '#protocol/message.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import { plainText } from '#protocol/text/plain-text.ts';
import type { AttachmentPolicy } from '#protocol/worker-definition.ts';
import { checkImage } from '../context/image-blocks.ts';
import { hasSuffix } from './read-definition.ts';

const IMAGES: Readonly<Record<string, string>> = {
  '.png': 'image/png',
  '.jpg': 'image/jpeg',
  '.jpeg': 'image/jpeg',
  '.gif': 'image/gif',
  '.webp': 'image/webp',
};
const PDF = 'application/pdf';

/** Decoded bytes of all files of a call. No provider accepts a larger request, so no policy can raise it. */
export const MAX_ATTACHED_BYTES = 32 * 1024 * 1024;

/** The fault of too many files, before any file is read; null = none. Message as in `findPolicyFault`. */
export function findCountFault(files: number, policy: AttachmentPolicy, whose: string): string | null {
  if (files <= policy.max_attachments) return null;
  return `${files} attachments, the attachment policy of ${whose} takes ${policy.max_attachments} (max_attachments)`;
}

/** The first violation of a policy; null = none. The message names the policy and the limit. */
export function findPolicyFault(
  files: readonly { readonly path: string; readonly bytes: number }[],
  policy: AttachmentPolicy,
  whose: string,
): string | null {
  const of = `the attachment policy of ${whose}`;
  for (const { path } of files) {
    const name = path.slice(path.lastIndexOf('/') + 1);
    if (hasSuffix(name, policy.denied_suffixes)) return `${path}: ${of} refuses its suffix (denied_suffixes)`;
    if (policy.allowed_suffixes.length > 0 && !hasSuffix(name, policy.allowed_suffixes))
      return `${path}: ${of} takes ${policy.allowed_suffixes.join(', ')} only (allowed_suffixes)`;
  }
  const total = files.reduce((sum, { bytes }) => sum + bytes, 0);
  if (total <= policy.max_total_bytes) return null;
  return `more than ${policy.max_total_bytes} bytes of attachments, ${of} takes no more (max_total_bytes)`;
}

export interface Attachment {
  readonly block: ContentBlock;
  readonly media_type: string;
}

/** A file as its model gets it, by the suffix of its name. The error begins with its code. */
export function createAttachment(path: string, data: Buffer): Result<Attachment, string> {
  const suffix = (/\.[^./]+$/.exec(path)?.[0] ?? '').toLowerCase();
  const image = Object.hasOwn(IMAGES, suffix) ? IMAGES[suffix] : undefined;
  if (image !== undefined) {
    const block: ImageBlock = { type: 'image', source: toBase64Source(data), media_type: image };
    const fault = checkImage(block.source.data, image);
    if (fault === null) return ok({ block, media_type: image });
    return err(`unsupported_attachment_type: ${path}: ${fault}`);
  }
  if (suffix === '.pdf') {
    if (!data.subarray(0, 1024).includes('%PDF-'))
      return err(`unsupported_attachment_type: ${path} is no PDF document`);
    return ok({
      block: { type: 'document', source: toBase64Source(data), media_type: PDF, name: path },
      media_type: PDF,
    });
  }
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(data);
    return ok({ block: textBlock(plainText(`Attachment ${path}:\n${text}`)), media_type: 'text/plain' });
  } catch {
    return err(`unsupported_attachment_type: ${path} is neither an image, a PDF document nor UTF-8 text`);
  }
}

function toBase64Source(data: Buffer) {
  return { kind: 'base64' as const, data: data.toString('base64') };
}
