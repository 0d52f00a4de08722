// Where the program of a thread is: built, or as source beside a server that runs from source.
import path from 'node:path';

/** @param place below `src/`, without its ending */
export function findThreadProgram(packageDir: string, place: string): string {
  // From source like this file, where Node itself runs TypeScript: a test runner may, on a Node that does not.
  const fromSource = import.meta.filename.endsWith('.ts') && process.features.typescript !== false;
  return path.join(packageDir, fromSource ? 'src' : 'dist', `${place}.${fromSource ? 'ts' : 'js'}`);
}
