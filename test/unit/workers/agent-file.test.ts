// Agents of other programs as definitions: nothing is widened, and what cannot be kept is said (13 §3.1).
import { describe, expect, it } from 'vitest';
import { parseAgentName, readAgent } from '#core/policy/workers/agent-file.ts';

const file = '.claude/agents/a.md';
function read(head: string, body = 'Do it.') {
  const text = `---\n${head}\n---\n${body}\n`;
  const { definition, errors, warnings } = readAgent(text, { name: parseAgentName(text, 'a'), file });
  const messages = (list: typeof errors) => list.map(({ path, message }) => `${path}: ${message}`);
  return { definition, errors: messages(errors), warnings: messages(warnings) };
}
const modeOf = (head: string) => read(head).definition?.sandboxes.workspace?.mode ?? null;
const toolsOf = (head: string) => read(head).definition?.tools;

describe('a head that is no YAML', () => {
  const LONG =
    'name: sprint-planner\n' +
    'description: Use this agent when a sprint is planned. Examples:\\n\\n<example>\\nContext: a new sprint\\n' +
    'user: "Plan it: two weeks" <commentary>It plans: well.</commentary>\\n</example>\n' +
    'color: indigo\n' +
    'tools: Write, Read\n' +
    'model: sonnet';

  // Promise 13.45: An agent's head that is no YAML is read line by line.
  it('is read line by line: a description may hold colons, quotes and tags', () => {
    const { definition, errors, warnings } = read(LONG);
    expect(errors).toEqual([]);
    expect(warnings).toEqual([]);
    expect(definition).toMatchObject({ name: 'sprint-planner', tier: 'balanced', tools: [] });
    expect(definition?.description).toMatch(/^Use this agent .* Examples:\n\n<example>\nContext: a new sprint\nuser:/);
    expect(definition?.sandboxes.workspace?.mode).toBe('rw');
  });

  it('goes on over lines that begin with no key, and reads lists and quoted texts beside it', () => {
    const { definition, errors } = read(
      'name: x\ndescription: Says: a\n\nExamples:\n- Context: b: c\ntools:\n  - Read\n  - Bash\ndisallowedTools: [Bash]\nmodel: "haiku"',
    );
    expect(errors).toEqual([]);
    expect(definition).toMatchObject({ tier: 'fast', tools: [] });
    expect(definition?.description).toBe('Says: a\n\nExamples:\n- Context: b: c');
    expect(definition?.sandboxes.workspace?.mode).toBe('ro');
  });

  it('with no key in it is an error', () => {
    expect(read('just: some: words').errors).toEqual([expect.stringMatching(/^: the head malformed YAML/)]);
    expect(read('[').errors).toHaveLength(1);
  });

  it('of a key twice has the first', () => {
    expect(read('description: a: b\ntools: Read\ntools: Write').definition?.sandboxes.workspace?.mode).toBe('ro');
  });
});

describe('what an agent must not use', () => {
  it.each([
    ['disallowedTools: Write, Edit', 'ro', ['shell']],
    ['disallowedTools: [Write, Edit, Bash]', 'ro', []],
    ['tools: Read, Write\ndisallowedTools: Write', 'ro', []],
    ['tools: Read, Bash\ndisallowedTools: Bash(rm:*)', 'ro', []],
    ['permissionMode: plan', 'ro', []],
    ['tools: Write, Bash\npermissionMode: plan', null, []],
    ['tools: Read, mcp__git__push\npermissionMode: plan', 'ro', []],
    ['permissionMode: default', 'rw', ['shell']],
    ['tools: "*"\ndisallowedTools: Bash', 'rw', []],
    ['tools: Read\npermissionMode: bypassPermissions', 'ro', []],
    ['tools: Read, mcp__git__push, mcp__git__log\ndisallowedTools: mcp__git__push', 'ro', ['mcp__git__log']],
    ['tools: Read, mcp__git__log\ndisallowedTools: mcp__git', 'ro', []],
    ['tools: Read, "mcp__*"\ndisallowedTools: mcp__git', 'ro', []],
    ['tools: Read, Skill\ndisallowedTools: Skill', 'ro', []],
  ])('%s', (head, mode, tools) => {
    expect(modeOf(head)).toBe(mode);
    expect(toolsOf(head)).toEqual(tools);
  });

  it('of a server whose tools it has is denied by a rule', () => {
    const { definition } = read('tools: mcp__git\ndisallowedTools: mcp__git__push');
    expect(definition?.tools).toEqual(['mcp__git__*']);
    expect(definition?.tool_rules).toMatchObject({ mcp__git__push: { allowed: false } });
  });
});

// Promise 13.45: Commands of the shell are never widened to the shell.
it('commands of the shell are never widened to the shell: the definition is refused and says why', () => {
  for (const tools of ['Read, Bash(git diff:*), Grep', 'Bash(git log:*, git diff:*)', '[Read, "Bash(npm test)"]']) {
    const { definition, errors } = read(`tools: ${tools}`);
    expect(definition).toBeNull();
    expect(errors).toEqual([
      expect.stringMatching(/^tools: "Bash\(.*the shell is not narrowed to commands; write Bash/),
    ]);
  }
});

it.each([
  ['name: next.js-expert', 'next-js-expert', ['name: is called "next-js-expert" here']],
  ['name: reviewer\ncolor: red', 'reviewer', []],
  ['description: x', 'a', []],
  ['name: "..."', 'a', ['name: is called "a" here']],
  [`name: ${'x'.repeat(100)}`, 'x'.repeat(64), [`name: is called "${'x'.repeat(64)}" here`]],
])('%s is called %s', (head, name, warnings) => {
  const found = read(head);
  expect(found.definition?.name).toBe(name);
  expect(found.warnings).toEqual(warnings);
});

it('an isolation other than a worktree is ignored with a warning', () => {
  expect(read('isolation: worktree').definition?.isolation).toBe('worktree');
  const other = read('isolation: container');
  expect([other.definition?.isolation, other.warnings]).toEqual([null, ['isolation: is ignored: it is no "worktree"']]);
});

it('models are tiers by their family', () => {
  expect(read('model: fable').definition).toMatchObject({ tier: 'deep', model: null });
});
