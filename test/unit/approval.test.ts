// The approval decision and the texts of a prompt (09 §5.2, §6.1).
import { describe, expect, it } from 'vitest';
import {
  type ApprovalDecision,
  type ApprovalQuestion,
  type ApprovalRule,
  approvalPayload,
  commandSummary,
  decideApproval,
  inputSummary,
  projectedModifications,
  resolveToolMode,
  type TrustEntries,
  trustMatches,
} from '#core/policy/tools/approval.ts';
import { defaultConfig, type ToolMode } from '#protocol/config.ts';
import type { ApprovalMode } from '#protocol/scalars.ts';

const NO_TRUST: TrustEntries = { always_allow: [], always_deny: [], malformed: false };
const RULES: Readonly<Record<string, ApprovalRule | null>> = {
  none: null,
  free: { allowed: true, approval_required: false },
  ask: { allowed: true, approval_required: true },
  open: { allowed: true, approval_required: null },
  forbidden: { allowed: false, approval_required: false },
};
const TRUST: Readonly<Record<string, TrustEntries>> = {
  none: NO_TRUST,
  allow: { ...NO_TRUST, always_allow: ['sh*'] },
  deny: { ...NO_TRUST, always_deny: ['shell'] },
  both: { always_allow: ['shell'], always_deny: ['s*'], malformed: false },
  malformed: { ...NO_TRUST, malformed: true },
};
const MODES: readonly ToolMode[] = ['auto', 'prompt', 'deny'];
const APPROVAL_MODES: readonly ApprovalMode[] = ['interactive', 'approve_all', 'strict'];

// The list as a table: a pattern per input (`*` = any, `a|b` = one of), first matching row decides.
type Row = readonly [set: string, rule: string, mode: string, trust: string, approval: string, granted: string];
const TABLE: readonly (readonly [...Row, ApprovalDecision])[] = [
  ['false', '*', '*', '*', '*', '*', 'not_found'],
  ['*', 'forbidden', '*', '*', '*', '*', 'deny_policy'],
  ['*', '*', 'deny', '*', '*', '*', 'deny_policy'],
  ['*', '*', '*', 'deny|both', '*', '*', 'deny_policy'],
  ['*', 'free', '*', '*', '*', '*', 'allow'],
  ['*', 'none|open', 'auto', '*', '*', '*', 'allow'],
  ['*', 'none|open', '*', 'allow', '*', '*', 'allow'],
  ['*', '*', '*', '*', 'strict', '*', 'deny_strict'],
  ['*', '*', '*', 'malformed', 'approve_all', '*', 'deny_policy'],
  ['*', '*', '*', '*', 'approve_all', '*', 'approve_all'],
  ['*', '*', '*', '*', '*', 'true', 'allow'],
  ['*', '*', '*', '*', '*', '*', 'ask'],
];

function expected(inputs: Row): ApprovalDecision {
  const matches = (pattern: string, value: string) => pattern === '*' || pattern.split('|').includes(value);
  const row = TABLE.find((r) => inputs.every((value, i) => matches(r[i]!, value)));
  return row![6];
}

describe('the approval decision', () => {
  // Promise 09.21: Rule, mode, trust entries, approval mode and earlier answers decide a call by one ordered list, every combination checked.
  it('gives the outcome of the first matching line for every combination of its inputs', () => {
    const seen = new Set<ApprovalDecision>();
    let combinations = 0;
    for (const inEffectiveSet of [true, false])
      for (const rule of Object.keys(RULES))
        for (const mode of MODES)
          for (const trust of Object.keys(TRUST))
            for (const approvalMode of APPROVAL_MODES)
              for (const granted of [true, false]) {
                const inputs: Row = [`${inEffectiveSet}`, rule, mode, trust, approvalMode, `${granted}`];
                const question: ApprovalQuestion = {
                  inEffectiveSet,
                  rule: RULES[rule]!,
                  mode,
                  trust: TRUST[trust]!,
                  toolName: 'shell',
                  approvalMode,
                  granted,
                };
                const decision = decideApproval(question);
                expect(decision, inputs.join(' ')).toBe(expected(inputs));
                seen.add(decision);
                combinations++;
              }
    expect(combinations).toBe(2 * 5 * 3 * 5 * 3 * 2);
    expect(seen.size).toBe(6);
  });

  it('lets a broken trust file allow nothing, whatever entries come with it', () => {
    const question: ApprovalQuestion = {
      inEffectiveSet: true,
      rule: null,
      mode: 'prompt',
      trust: { always_allow: ['shell'], always_deny: [], malformed: true },
      toolName: 'shell',
      approvalMode: 'interactive',
      granted: false,
    };
    expect(decideApproval(question)).toBe('ask');
  });
});

describe('trust entries', () => {
  it.each([
    [['shell'], 'shell', true],
    [['shell'], 'shell2', false],
    [['mcp__github__*'], 'mcp__github__create', true],
    [['mcp__github__*'], 'mcp__gitlab__create', false],
    [['*'], 'shell', false],
    [['s*l'], 'shell', false],
    [[], 'shell', false],
  ])('%j and %s match: %s', (entries, name, match) => {
    expect(trustMatches(entries, name)).toBe(match);
  });
});

describe('the mode of a tool', () => {
  const config = defaultConfig('/data').tool_confirmation;
  const shell = { name: 'shell', side_effects: 'execute' } as const;

  it('is that of its class unless per_tool names it', () => {
    expect(resolveToolMode(config, shell)).toBe('prompt');
    expect(resolveToolMode(config, { name: 'read_file', side_effects: 'read' })).toBe('auto');
    expect(resolveToolMode({ ...config, per_tool: { shell: 'deny' } }, shell)).toBe('deny');
    expect(resolveToolMode(config, { name: 'delegate', side_effects: 'execute' })).toBe('auto');
  });

  it('takes the own name before the group, and the group before the class', () => {
    const write = { name: 'write_file', side_effects: 'write', group: 'sandbox.write' } as const;
    expect(resolveToolMode({ ...config, per_tool: { 'sandbox.write': 'auto' } }, write)).toBe('auto');
    expect(resolveToolMode({ ...config, per_tool: { 'sandbox.write': 'auto', write_file: 'deny' } }, write)).toBe(
      'deny',
    );
  });

  it('is auto for worker calls and attachments that no key covers', () => {
    const call = { name: 'evaluator', side_effects: 'execute' } as const;
    expect(resolveToolMode(config, { ...call, group: 'worker.call' })).toBe('auto');
    expect(resolveToolMode(config, { ...call, group: 'sandbox.read' })).toBe('auto');
    expect(resolveToolMode(config, { ...call, group: 'worker.create' })).toBe('prompt');
    expect(
      resolveToolMode({ ...config, per_tool: { 'worker.call': 'prompt' } }, { ...call, group: 'worker.call' }),
    ).toBe('prompt');
  });

  it('is not fooled by a tool named like a member of every object', () => {
    expect(resolveToolMode(config, { name: 'constructor', side_effects: 'network' })).toBe('prompt');
  });
});

describe('what a prompt shows', () => {
  it('summarises the input as sorted-key JSON', () => {
    expect(inputSummary({ b: 1, a: 'x' })).toBe('{"a":"x","b":1}');
  });

  it('cuts a long summary at 200 characters ending in ...', () => {
    const summary = inputSummary({ content: 'x'.repeat(100_000) });
    expect(summary).toHaveLength(200);
    expect(summary.endsWith('x...')).toBe(true);
    expect(inputSummary({ c: 'x'.repeat(192) })).toHaveLength(200);
    expect(inputSummary({ c: 'x'.repeat(192) }).endsWith('"}')).toBe(true);
  });

  it('never cuts through a character', () => {
    expect(inputSummary({ c: '😀'.repeat(200) })).toMatch(/^\{"c":"(😀)+\.\.\.$/u);
  });

  it('redacts secrets, also one that reaches over the cut', () => {
    const key = `sk-${'a'.repeat(300)}`;
    expect(inputSummary({ a: `${'x'.repeat(150)} ${key}` })).not.toContain('sk-a');
  });

  it('shows the paths and addresses that are said yes to, and none of the keys', () => {
    expect(inputSummary({ path: '/home/ann/.ssh/config', to: 'bob@example.com', key: 'mine' }, ['mine'])).toBe(
      '{"key":"[REDACTED]","path":"/home/ann/.ssh/config","to":"bob@example.com"}',
    );
  });

  it('marks a summary as cut when redaction made the rest short', () => {
    expect(inputSummary({ a: `sk-${'a'.repeat(20_000)}` })).toBe('{"a":"[REDACTED]...');
  });

  it('lists the paths of write tools and the file of memory tools', () => {
    const write = { side_effects: 'write', path_fields: ['path', 'paths'] } as const;
    expect(projectedModifications(write, { path: 'a', paths: ['b', 3], content: '' })).toEqual(['a', 'b']);
    expect(projectedModifications({ ...write, path_fields: ['paths'] }, { paths: ['b', 'c'] })).toEqual(['b', 'c']);
    expect(projectedModifications({ ...write, memory_field: 'file' }, { file: 'USER.md' })).toEqual(['.metis/USER.md']);
    expect(projectedModifications({ ...write, side_effects: 'read' }, { path: 'a' })).toBeNull();
  });

  it('shows the command of a tool that runs one, at most 500 characters of it', () => {
    const summary = (command: string) => commandSummary({ command_field: 'command' }, { command }, ['mine-alone']);
    expect(summary('ls')).toBe('ls');
    expect(summary('x'.repeat(600))).toBe(`${'x'.repeat(497)}...`);
    expect(commandSummary({}, { command: 'ls' }, [])).toBeNull();
  });

  it('keeps no credential in a command, a payload or JSON with escapes, and no half of one at a cut', () => {
    const secret = 'mine-alone';
    const command = (text: string) => commandSummary({ command_field: 'command' }, { command: text }, [secret]);
    expect(command('curl -H "x-api-key: abc" -u mine-alone https://a.example/b')).toBe(
      'curl -H "[REDACTED]" -u [REDACTED] https://a.example/b',
    );
    for (let before = 485; before < 505; before++)
      expect(command(`${'x'.repeat(before)}${secret}`)).not.toContain('mi');
    const write = { name: 'write_file', group: 'sandbox.write', path_fields: ['path'] } as const;
    for (let before = 4080; before < 4100; before++)
      expect(
        approvalPayload(write, { path: 'a', content: `${'x'.repeat(before)}${secret} y` }, [secret]),
      ).toMatchObject({
        excerpt: expect.not.stringContaining('mi'),
      });
    expect(inputSummary({ a: 'say "it"\n now' }, ['say "it"\n'])).toBe('{"a":"[REDACTED] now"}');
  });
});
