// The scenarios that ship with the package are valid and do what their texts say.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { parseScenario } from '#models/scripted/scenario.ts';

const ROOT = path.resolve(import.meta.dirname, '../../..');
const load = (name: string) => {
  const file = path.join(ROOT, 'config/scenarios', name);
  const parsed = parseScenario(fs.readFileSync(file, 'utf8'), name);
  if (!parsed.ok) throw new Error(parsed.error.join('\n'));
  return parsed.value;
};

describe('the demo job', () => {
  let copy: string;
  beforeEach(() => {
    copy = fs.mkdtempSync(path.join(os.tmpdir(), 'metis-example-'));
    fs.cpSync(path.join(ROOT, 'examples/auth-refactor'), copy, { recursive: true });
  });
  afterEach(() => fs.rmSync(copy, { recursive: true, force: true }));

  it("its edits fit the example's files, and the example's tests hold before and after", () => {
    runTests(copy);
    const calls = load('auth-refactor.yaml').rules.flatMap((rule) => rule.responses.flatMap((r) => r.tool_calls ?? []));
    for (const { name, input } of calls) {
      const file = path.join(copy, String(input.path));
      if (name === 'write_file') fs.writeFileSync(file, String(input.content));
      if (name !== 'edit_file') continue;
      const pieces = fs.readFileSync(file, 'utf8').split(String(input.old));
      expect({ file: input.path, occurrences: pieces.length - 1 }).toEqual({ file: input.path, occurrences: 1 });
      fs.writeFileSync(file, pieces.join(String(input.new)));
    }
    for (const provider of ['google', 'github', 'gitlab']) {
      const text = fs.readFileSync(path.join(copy, `src/${provider}.mjs`), 'utf8');
      expect(text).toContain('checkedEmail(input, now)');
      expect(text).not.toContain('throw new');
    }
    runTests(copy);
  });

  it('every call reports the tokens it would have used', () => {
    for (const rule of load('auth-refactor.yaml').rules) {
      for (const { usage } of rule.responses) expect(usage?.output_tokens, rule.id).toBeGreaterThan(0);
    }
  });
});

it('the stand-in scenario delegates twice at once and sums up', () => {
  const [first, second] = load('demo.yaml').rules;
  expect(first!.responses[0]!.tool_calls?.map((call) => call.name)).toEqual(['delegate', 'delegate']);
  expect(second!.responses[0]!.text).toContain('{{last_tool_result}}');
});

function runTests(folder: string): void {
  // Vitest's own settings of the test runner must not reach the child.
  const { NODE_OPTIONS: _options, NODE_TEST_CONTEXT: _context, ...env } = process.env;
  execFileSync(process.execPath, ['--test'], { cwd: folder, env, stdio: 'pipe' });
}
