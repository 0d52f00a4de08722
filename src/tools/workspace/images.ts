// Images of the workspace, read once and kept as bytes (10 §8).

import { faultOfSize, imageType, MAX_IMAGE_BYTES } from '#core/policy/context/images.ts';
import type { WorkspaceFiles } from '#core/ports/workspace.ts';
import type { ImageBlock } from '#protocol/message.ts';
import { ToolError } from '#protocol/tool.ts';

/** Null when the file is missing, outside, too large or no supported image. */
export async function readImage(files: WorkspaceFiles, path: string): Promise<ImageBlock | null> {
  try {
    const data = await files.read(await files.resolve(path, 'read'), MAX_IMAGE_BYTES);
    const type = imageType(data);
    if (type === null || faultOfSize(data, type) !== null) return null;
    return { type: 'image', source: { kind: 'base64', data: data.toString('base64') }, media_type: type };
  } catch (error) {
    if (error instanceof ToolError) return null;
    throw error;
  }
}
