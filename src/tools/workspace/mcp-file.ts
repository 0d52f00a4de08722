// The text of a workspace's `.mcp.json`, a file that its people share with other programs (09 §11, 18 §2).
import { OUTSIDE } from '#core/policy/parsing/limits.ts';
import type { Logger } from '#core/ports/log.ts';
import { problemOf, readStart } from './descriptors.ts';

const NAME = '.mcp.json';

/** One byte more than is allowed at most, so that a reader sees that it is too long. Null when there is none to read. */
export async function readMcpFile(root: string, log: Logger): Promise<string | null> {
  try {
    // A link in its place is refused: file tools may write what it leads to.
    return (await readStart(`${root}/${NAME}`, OUTSIDE.bytes + 1))?.toString('utf8') ?? null;
  } catch (error) {
    log.warn({ workspace: root }, `.mcp.json: ${problemOf(error)}; it is ignored`);
    return null;
  }
}
