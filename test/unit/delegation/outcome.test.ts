// How a worker's end becomes an outcome and what its planner reads of it (04 §4.2, §5.3, §7, §12).
import { describe, expect, it } from 'vitest';
import {
  formatForPlanner,
  readStructured,
  repairMessage,
  type WorkerEnd,
  workerOutcome,
} from '#core/policy/delegation/worker-outcome.ts';
import { NO_CHANGES } from '#protocol/file-change.ts';
import type { SessionId } from '#protocol/ids.ts';
import { toPusd } from '#protocol/money.ts';
import { err, ok } from '#protocol/result.ts';
import { ulidOf } from '../../support/messages.ts';

const worker_session_id = `sess_${ulidOf(3)}` as SessionId;
const completed: Extract<WorkerEnd, { kind: 'completed' }> = {
  kind: 'completed',
  stop_reason: 'end_turn',
  text: 'so far',
  llm_calls: 25,
  tokens_exhausted: false,
  context_request: null,
  structured: null,
  budget: null,
};
const request = { summary: 'need a', missing: [{ type: 'file' as const, ref: 'a.ts', hint: 'read' }] };

/** `[failure_mode, error, output, disposition]` as planner and session see them. */
function seen(end: WorkerEnd) {
  const outcome = workerOutcome(end);
  const { texts } = formatForPlanner({ ...outcome, worker_session_id, ...NO_CHANGES }, null);
  const { error, output } = JSON.parse(texts[0]!);
  return [outcome.failure_mode, error, output, outcome.disposition];
}

describe('workerOutcome', () => {
  it('succeeds at end_turn with the text, or with the object when a schema was met', () => {
    expect(workerOutcome(completed)).toMatchObject({ success: true, output: 'so far', disposition: 'completed' });
    expect(workerOutcome({ ...completed, structured: ok({ n: 1 }) }).output).toEqual({ n: 1 });
  });

  it('names the failure of every other end, keeping what text there is', () => {
    expect(seen({ ...completed, stop_reason: 'max_tokens' })).toEqual([
      'max_tokens_exceeded',
      'max_tokens_exceeded',
      'so far',
      'failed',
    ]);
    expect(seen({ ...completed, stop_reason: 'tool_use', tokens_exhausted: true })[0]).toBe('max_tokens_exceeded');
    expect(seen({ ...completed, stop_reason: 'tool_use' })).toEqual([
      'worker_error',
      'worker_error: stopped after 25 LLM calls',
      'so far',
      'failed',
    ]);
    expect(seen({ ...completed, stop_reason: 'stop_sequence' })[0]).toBe('worker_error');
    expect(seen({ ...completed, stop_reason: 'tool_use', context_request: request })).toEqual([
      'insufficient_context',
      'insufficient_context',
      request,
      'failed',
    ]);
    const budget = { scope: 'delegation', left: toPusd('0.01') };
    expect(seen({ ...completed, stop_reason: 'budget_exceeded', budget })).toEqual([
      'budget_exceeded',
      'budget_exceeded: delegation limit, 0.01 USD left',
      'so far',
      'failed',
    ]);
    expect(seen({ kind: 'failed', message: 'provider down', text: '' })).toEqual([
      'worker_error',
      'worker_error: provider down',
      '',
      'failed',
    ]);
    expect(seen({ kind: 'routing_failed', message: 'no model' })[1]).toBe('worker_error: no model');
    expect(seen({ kind: 'not_spawned', message: 'too many delegations in this turn' })[1]).toBe(
      'worker_error: too many delegations in this turn',
    );
    expect(seen({ kind: 'no_model' })).toEqual([
      'no_model_available_for_tier',
      'no_model_available_for_tier',
      '',
      'failed',
    ]);
    expect(seen({ kind: 'timeout', seconds: 300, text: 'half' })).toEqual([
      'timeout',
      'timeout: worker exceeded 300s',
      'half',
      'failed',
    ]);
  });

  // Promise 04.13: The planner's model reads who cancelled a worker and that the work is not to be started again.
  it('tells a cascaded cancel from a direct one, and tells the planner who cancelled and not to try again', () => {
    const cascaded = workerOutcome({ kind: 'cancelled', scope: 'planner', text: 'half' });
    const direct = workerOutcome({ kind: 'cancelled', scope: 'worker', text: 'half' });
    expect([cascaded.cancel_scope, direct.cancel_scope]).toEqual(['planner', 'worker']);
    expect([cascaded.disposition, direct.disposition]).toEqual(['cancelled', 'cancelled']);
    expect(direct.error_message).toMatch(/^worker cancelled directly/);
    expect(seen({ kind: 'cancelled', scope: 'worker', text: 'half' }).slice(1, 3)).toEqual([
      'cancelled_by_user: worker cancelled directly by the user, not by the planner; do not start the same work again unless the user asks for it',
      'half',
    ]);
  });

  it('fails an answer that misses its schema with the raw text, the problems staying in the record', () => {
    const end: WorkerEnd = {
      ...completed,
      text: '{"n":"x"}',
      structured: err([{ path: '$.n', message: 'must be integer' }]),
    };
    expect(workerOutcome(end).error_message).toBe('output_schema_validation_failed: $.n: must be integer');
    expect(seen(end).slice(0, 3)).toEqual([
      'output_schema_validation_failed',
      'output_schema_validation_failed',
      '{"n":"x"}',
    ]);
  });
});

describe('formatForPlanner', () => {
  const view = (
    outcome: ReturnType<typeof workerOutcome>,
    { id = worker_session_id as SessionId | null, changes = {}, line = null as string | null } = {},
  ) => formatForPlanner({ ...outcome, worker_session_id: id, ...NO_CHANGES, ...changes }, line);

  it('is the output alone on success, and one compact JSON object on failure', () => {
    const success = workerOutcome(completed);
    expect(view(success)).toEqual({ texts: ['so far'], notes: [], is_error: false });
    expect(view({ ...success, output: { n: 1 } })).toEqual({ texts: ['{"n":1}'], notes: [], is_error: false });
    expect(view(workerOutcome({ kind: 'no_model' }), { id: null })).toEqual({
      texts: ['{"error":"no_model_available_for_tier","output":"","worker_session_id":null}'],
      notes: [],
      is_error: true,
    });
  });

  it('cuts more than 100000 characters and names the worker session', () => {
    const exact = workerOutcome({ ...completed, text: 'x'.repeat(100_000) });
    expect(view(exact)).toMatchObject({ texts: ['x'.repeat(100_000)], notes: [] });
    const over = view({ ...exact, output: 'x'.repeat(100_001) });
    expect(over.texts).toEqual(['x'.repeat(100_000)]);
    expect(over.notes).toEqual([expect.stringContaining(worker_session_id)]);
  });

  // Promise 04.25: A schema answer stays JSON for the planner; the server's notes are one block of their own behind it.
  it("are the output alone and the server's notes behind it, so that an object stays JSON", () => {
    const changes = {
      changed_files: [{ path: 'a.ts', change: 'edited' as const }],
      applied: false,
      conflicts: ['a.ts'],
    };
    const line = '[worker w]';
    const notes = [
      '[changed 1 file: a.ts]',
      '[changes not applied, conflicts in: a.ts; continue this worker to resolve them]',
      line,
    ];
    const object = workerOutcome({ ...completed, structured: ok({ n: 1 }) });
    expect(view(object, { changes, line })).toMatchObject({ texts: ['{"n":1}'], notes });
    const failure = view(workerOutcome({ kind: 'no_model' }), { changes, line });
    expect(JSON.parse(failure.texts[0]!)).toMatchObject({ error: 'no_model_available_for_tier' });
    expect(failure).toMatchObject({ texts: [expect.anything()], notes });
    const silent = workerOutcome({ ...completed, text: '' });
    expect(view(silent, { changes, line })).toMatchObject({ texts: [], notes });
    expect(view(silent)).toMatchObject({ texts: [], notes: [] });
  });
});

describe('readStructured', () => {
  it('is not held up by a fence that never closes, or by nesting without end', () => {
    const from = performance.now();
    const wrong = [`\`\`\`\n${' '.repeat(300_000)}x`, `${'~'.repeat(300_000)}\nx`, `{"a":${'['.repeat(200_000)}`];
    for (const text of wrong) expect(readStructured(text, () => [])).toMatchObject({ ok: false });
    expect(performance.now() - from).toBeLessThan(2000);
    const deep = `{"a":${'['.repeat(5_000)}${']'.repeat(5_000)}}`;
    expect(readStructured(deep, () => [])).toEqual(
      err([{ path: '$', message: 'is nested deeper than 100 levels at line 1' }]),
    );
  });

  const integerN = (v: unknown) =>
    Number.isInteger((v as { n?: unknown }).n) ? [] : [{ path: '$.n', message: 'must be integer' }];

  it('reads a bare object and one that is a single fenced block', () => {
    expect(readStructured(' {"n": 1}\n', integerN)).toEqual(ok({ n: 1 }));
    expect(readStructured('```json\n{"n": 1}\n```', integerN)).toEqual(ok({ n: 1 }));
    expect(readStructured('~~~\n{\n"n": 1\n}\n~~~\n', integerN)).toEqual(ok({ n: 1 }));
    expect(readStructured('{"n": 1, "s": "```\\nx\\n```"}', integerN)).toMatchObject({ ok: true });
  });

  it('refuses prose, text around a block, a second block, other roots and what the schema refuses', () => {
    const broken = ['hello', 'Here:\n```json\n{"n":1}\n```', '```\n{"n":1}\n```\n```\n{}\n```', '[1]', 'null', ''];
    for (const text of broken)
      expect(readStructured(text, integerN)).toMatchObject({ ok: false, error: [{ path: '$' }] });
    expect(readStructured('{"n":"x"}', integerN)).toEqual(err([{ path: '$.n', message: 'must be integer' }]));
  });
});

describe('repairMessage', () => {
  it('lists at most ten problems, one a line', () => {
    const issues = Array.from({ length: 12 }, (_, i) => ({ path: `$.p${i}`, message: 'is required' }));
    const message = repairMessage(issues);
    expect(message.split('\n').filter((line) => line.endsWith(': is required'))).toHaveLength(10);
    expect(message).toContain('$.p9: is required');
    expect(message).not.toContain('$.p10');
  });
});
