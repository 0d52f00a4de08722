// What a build is made from, as one hash: while it stays the same, the last build is the one that would be made.
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';

/** Sources and the scripts that build them, how they are compiled, and which libraries are installed. */
const FOLDERS = ['src', 'scripts'];
const FILES = [
  'package.json',
  'tsconfig.json',
  'tsconfig.build.json',
  'tsconfig.client.json',
  'package-lock.json',
  'node_modules/.package-lock.json',
];

/** @param root the folder of the repository */
export function hashInputs(root) {
  const hash = createHash('sha256').update(process.version);
  const listed = FOLDERS.flatMap((folder) =>
    fs
      .readdirSync(path.join(root, folder), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => path.relative(root, path.join(entry.parentPath, entry.name))),
  );
  for (const name of [...listed.sort(), ...FILES]) {
    const file = path.join(root, name);
    hash.update(`\0${name}\0`);
    if (fs.existsSync(file)) hash.update(fs.readFileSync(file));
  }
  return hash.digest('hex');
}
