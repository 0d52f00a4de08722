// A user for programs that refuse to run as root.
import fs from 'node:fs';

/** Where the tests run as root. */
export function ordinaryUser(): { readonly uid: number; readonly gid: number } {
  for (const name of ['postgres', 'nobody']) {
    const line = new RegExp(`^${name}:[^:]*:(\\d+):(\\d+):`, 'm').exec(fs.readFileSync('/etc/passwd', 'utf8'));
    if (line !== null) return { uid: Number(line[1]), gid: Number(line[2]) };
  }
  throw new Error('the program does not run as root, and neither postgres nor nobody is a user here');
}
