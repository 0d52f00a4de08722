// Where an error comes from: places in the built files, told as places in the source.
import fs from 'node:fs';
import { SourceMap } from 'node:module';
import { fileURLToPath } from 'node:url';

/** Read with the first error of each file, not with every start. */
const maps = new Map<string, SourceMap | null>();

/** The stack of an error with each place in a built file replaced by that of its source; the rest stays as it is. */
export function mapToSource(stack: string): string {
  return stack.replaceAll(/(file:\/\/\S+\.js):(\d+):(\d+)/g, (place, url: string, line: string, column: string) => {
    const entry = findSourceMap(url)?.findEntry(Number(line) - 1, Number(column) - 1);
    if (entry === undefined || !('originalSource' in entry)) return place;
    const source = entry.originalSource.replace(/^(?:\.\.\/)+/, '');
    return `${source}:${entry.originalLine + 1}:${entry.originalColumn + 1}`;
  });
}

/** Null for a file without a map, such as a library's. */
function findSourceMap(url: string): SourceMap | null {
  const known = maps.get(url);
  if (known !== undefined) return known;
  const read = readMap(url);
  maps.set(url, read);
  return read;
}

function readMap(url: string): SourceMap | null {
  try {
    return new SourceMap(JSON.parse(fs.readFileSync(`${fileURLToPath(url)}.map`, 'utf8')));
  } catch {
    return null;
  }
}
