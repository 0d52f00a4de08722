// What sandboxes may be, and which files belong into one (13 §4).
import type { Sandbox } from '#protocol/worker/definition.ts';
import type { Fault } from './fault.ts';

/** The path below the workspace in one spelling, `.` for the workspace itself; null when it leads out of it. */
export function sandboxRoot(path: string): string | null {
  const plain = path.replaceAll('\\', '/');
  if (plain === '' || plain.startsWith('/') || plain.startsWith('~') || plain.includes('\0')) return null;
  if (/^[A-Za-z]:/.test(plain)) return null;
  const parts: string[] = [];
  for (const part of plain.split('/')) {
    if (part === '' || part === '.') continue;
    if (part !== '..') parts.push(part);
    else if (parts.pop() === undefined) return null;
  }
  return parts.length === 0 ? '.' : parts.join('/');
}

/** A sandbox that is written to must not hold one that is only read: what is protected by the one would be open by the other. */
export function sandboxFaults(sandboxes: Readonly<Record<string, Sandbox>>): readonly Fault[] {
  const faults: Fault[] = [];
  const roots = new Map<string, string>();
  for (const [name, { path }] of Object.entries(sandboxes)) {
    const root = sandboxRoot(path);
    if (root === null)
      faults.push({ path: ['sandboxes', name, 'path'], message: 'must be a folder below the workspace' });
    else roots.set(name, root);
  }
  for (const [name, root] of roots) {
    if (sandboxes[name]?.mode !== 'rw') continue;
    for (const [other, inner] of roots)
      if (sandboxes[other]?.mode === 'ro' && (root === '.' || inner === root || inner.startsWith(`${root}/`)))
        faults.push({
          path: ['sandboxes', name, 'path'],
          message: `sandbox_overlap: "${name}" may be written to and holds "${other}", which may not`,
        });
  }
  return faults;
}

/** Whether a file of this name is one of these; no suffixes = every file is. `""` is a name without a dot after its first character. */
export function hasSuffix(fileName: string, suffixes: readonly string[]): boolean {
  const name = fileName.toLowerCase();
  return suffixes.some((suffix) =>
    suffix === '' ? name.indexOf('.', 1) < 0 : name.length > suffix.length && name.endsWith(suffix),
  );
}
