// The two routing files as bytes; what they mean is decided elsewhere (03 §6.4).

import type { Logger } from '#core/ports/log.ts';
import type { RoutingFile } from '#core/ports/workspace.ts';
import { sha256Hex } from '#protocol/text/canonical-json.ts';
import { problemOf, readStart } from './descriptors.ts';

/** Far above any file a person writes; a larger one is cut and then fails to parse, with a message. */
const MAX_BYTES = 1024 * 1024;

/** One file as it is now; one that cannot be read counts as absent. */
export async function readRoutingFile(path: string, realPath: string, log: Logger): Promise<RoutingFile> {
  const bytes = await readStart(realPath, MAX_BYTES).catch((error: unknown) => {
    log.warn({ path, problem: problemOf(error) }, 'a routing file cannot be read');
    return null;
  });
  return { path, bytes, stamp: bytes === null ? '' : sha256Hex(bytes) };
}
