// The snippets of the first steps are those of the README.
import fs from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { listSnippets } from '#dashboard/views/help/snippets.ts';
import { ROOT } from '../../support/real-server.ts';

test('the snippets for Claude Code and Codex are those of the README', () => {
  const readme = fs.readFileSync(path.join(ROOT, 'README.md'), 'utf8');
  const snippets = listSnippets('http://127.0.0.1:8420', false);
  for (const name of ['Claude Code', 'Codex'])
    expect(readme).toContain(`\n${snippets.find((one) => one.name === name)!.text}\n\`\`\``);
});
