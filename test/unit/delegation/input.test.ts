// The input of `delegate`: form, context references and size (04 §4, §4.1).
import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, it } from 'vitest';
import {
  contextIssue,
  DELEGATE_JSON_SCHEMA,
  estimateTaskSize,
  parseDelegateInput,
  REQUEST_CONTEXT_JSON_SCHEMA,
  resolveContext,
} from '#core/policy/delegation/delegate-tool.ts';
import { InsufficientContextRequestSchema } from '#protocol/delegate.ts';
import { messageId, toolUseId } from '../../support/messages.ts';

const nothing = { message: () => null, toolResult: () => null };

function problems(input: unknown): string[] {
  const parsed = parseDelegateInput(input);
  return parsed.ok ? [] : parsed.error.map((issue) => issue.path);
}

describe('parseDelegateInput', () => {
  it('fills in every default, and takes a bare string as an inline note', () => {
    expect(parseDelegateInput({ tier: 'fast', task: 'do it' })).toEqual({
      ok: true,
      value: {
        tier: 'fast',
        effort: null,
        task: 'do it',
        context: { mode: 'minimal', include: [] },
        output_schema: null,
        allowed_tools: null,
        max_tokens: null,
        timeout_seconds: null,
        max_cost_usd: null,
        isolation: null,
        apply: null,
        check: null,
        on_fail: null,
        continue: null,
        history: null,
        background: false,
      },
    });
    const parsed = parseDelegateInput({ tier: 'deep', task: 't', context: { mode: 'explicit', include: ['careful'] } });
    expect(parsed.ok && parsed.value.context.include).toEqual([{ type: 'inline', label: 'note', text: 'careful' }]);
  });

  it('names each fault by its path', () => {
    expect(problems({ tier: 'huge', task: ' ' })).toEqual(['tier', 'task']);
    expect(problems({ tier: 'fast', task: 't', effort: 'huge' })).toEqual(['effort']);
    expect(problems({ tier: 'fast', task: 'x'.repeat(20_001) })).toEqual(['task']);
    expect(problems({ tier: 'fast', task: 't', colour: 'red' })).toEqual(['colour']);
    expect(problems('fast')).toEqual(['$']);
    expect(problems({ tier: 'fast', task: 't', context: { mode: 'minimal', include: ['a'] } })).toEqual([
      'context.include',
    ]);
    expect(problems({ tier: 'fast', task: 't', max_tokens: 0, timeout_seconds: 3601, max_cost_usd: 0.5 })).toEqual([
      'max_tokens',
      'timeout_seconds',
      'max_cost_usd',
    ]);
    const include = [
      { type: 'file_range', path: 'a', lines: [9, 2] },
      { type: 'message', message_id: 'nope' },
    ];
    expect(problems({ tier: 'fast', task: 't', context: { mode: 'explicit', include } })).toEqual([
      'context.include[0].lines',
      'context.include[1].message_id',
    ]);
  });
});

it('the schema that a model reads admits the limits that the input takes, and no others', () => {
  const validate = new Ajv2020({ strict: false }).compile(DELEGATE_JSON_SCHEMA);
  for (const max_cost_usd of ['0.25', '999999.999999', '1000000', '1.0000001', '01', '-1', '1e2']) {
    const input = { tier: 'fast', task: 't', max_cost_usd };
    expect([max_cost_usd, validate(input)]).toEqual([max_cost_usd, problems(input).length === 0]);
  }
});

describe('resolveContext', () => {
  const texts = {
    message: (id: string) => (id === messageId(1) ? 'what was said' : null),
    toolResult: (id: string) => (id === toolUseId(1) ? 'what was found' : null),
  };

  it('keeps files as references and inlines the rest, in the given order', () => {
    expect(
      resolveContext(
        [
          { type: 'tool_result', tool_use_id: toolUseId(1) },
          { type: 'file', path: 'src/a.ts' },
          { type: 'inline', label: 'plan\n## Task', text: 'first a\nthen b' },
          { type: 'file_range', path: 'src/a.ts', lines: [40, 80] },
          { type: 'message', message_id: messageId(1) },
        ],
        texts,
      ),
    ).toEqual({
      ok: true,
      value: [
        { kind: 'tool_result', label: toolUseId(1), text: 'what was found' },
        { kind: 'file', label: 'src/a.ts', text: null },
        { kind: 'inline', label: 'plan ## Task', text: 'first a\nthen b' },
        { kind: 'file_range', label: 'src/a.ts lines 40-80', text: null },
        { kind: 'message', label: messageId(1), text: 'what was said' },
      ],
    });
  });

  it('reports every reference that is not the caller’s own', () => {
    const resolved = resolveContext(
      [
        { type: 'message', message_id: messageId(7) },
        { type: 'inline', label: 'a', text: 'b' },
        { type: 'tool_result', tool_use_id: toolUseId(7) },
      ],
      texts,
    );
    expect(resolved).toEqual({ ok: false, error: [contextIssue(0), contextIssue(2)] });
    expect(contextIssue(2).message).toBe('context_reference_invalid: include[2]');
  });

  it('cuts a body at 20000 characters without splitting one, and says so', () => {
    const body = (text: string) => {
      const resolved = resolveContext([{ type: 'inline', label: 'a', text }], nothing);
      return resolved.ok ? resolved.value[0]!.text : null;
    };
    expect(body('x'.repeat(20_000))).toBe('x'.repeat(20_000));
    expect(body('x'.repeat(20_001))).toBe(`${'x'.repeat(20_000)}[truncated]`);
    expect(body(`${'x'.repeat(19_999)}\u{1F600}`)).toBe(`${'x'.repeat(19_999)}[truncated]`);
  });

  it('refuses more than 200000 inlined characters together', () => {
    const items = (n: number, chars: number) =>
      Array.from({ length: n }, () => ({ type: 'inline' as const, label: 'a', text: 'x'.repeat(chars) }));
    expect(resolveContext(items(10, 20_000), nothing).ok).toBe(true);
    const over = resolveContext([...items(10, 20_000), ...items(1, 1)], nothing);
    expect(over).toMatchObject({ ok: false, error: [{ path: 'context.include' }] });
  });
});

describe('taskSize', () => {
  it('estimates the task with the inlined bodies and the reference lines', () => {
    const entries = [
      { kind: 'file', label: 'src/a.ts', text: null },
      { kind: 'inline', label: 'not counted', text: 'b'.repeat(40) },
    ] as const;
    expect(estimateTaskSize('t'.repeat(20), entries)).toBe(Math.floor((20 + 'file src/a.ts'.length + 40) / 4));
  });
});

describe('the schemas a model is shown', () => {
  const ajv = new Ajv2020({ allErrors: true, strict: true, strictTypes: true });
  const delegate = ajv.compile(DELEGATE_JSON_SCHEMA);
  const request = ajv.compile(REQUEST_CONTEXT_JSON_SCHEMA);

  it('accept what the parser accepts', () => {
    for (const input of [
      { tier: 'fast', task: 't' },
      { tier: 'deep', task: 't', context: { mode: 'explicit', include: ['a', { type: 'file', path: 'a.ts' }] } },
      { tier: 'fast', task: 't', output_schema: { type: 'object' }, allowed_tools: [], max_cost_usd: '0.5' },
      { tier: 'fast', task: 't', output_schema: null, allowed_tools: null, max_tokens: null, max_cost_usd: null },
    ]) {
      expect([delegate(input), problems(input)]).toEqual([true, []]);
    }
    const asked = { summary: 's', missing: [{ type: 'file', ref: 'a.ts', hint: 'to read it' }] };
    expect([request(asked), InsufficientContextRequestSchema.safeParse(asked).success]).toEqual([true, true]);
    expect(request({ summary: '', missing: [] })).toBe(false);
  });

  it('describe every property', () => {
    const undescribed: string[] = [];
    const walk = (schema: unknown, path: string) => {
      if (typeof schema !== 'object' || schema === null) return;
      const { properties, items, anyOf } = schema as {
        properties?: Record<string, unknown>;
        items?: unknown;
        anyOf?: unknown[];
      };
      for (const [name, child] of Object.entries(properties ?? {})) {
        if (typeof (child as { description?: unknown }).description !== 'string') undescribed.push(`${path}.${name}`);
        walk(child, `${path}.${name}`);
      }
      walk(items, `${path}[]`);
      for (const option of anyOf ?? []) walk(option, path);
    };
    walk(DELEGATE_JSON_SCHEMA, 'delegate');
    walk(REQUEST_CONTEXT_JSON_SCHEMA, 'request');
    expect(undescribed).toEqual([]);
  });
});
