// Random delegation trees as plain data, and the scenario that plays one.
import fc from 'fast-check';
import type { Match, Respond, Rule, Scenario } from '#models/scripted/scenario.ts';
import type { ErrorClass } from '#protocol/scalars.ts';

type Call = NonNullable<Respond['tool_calls']>[number];

const MAX_WORKERS = 12;

/** One answer of a session's model. */
export interface Step {
  readonly delay: number;
  readonly calls: readonly PlannedCall[];
  readonly trouble: Trouble;
}
type Trouble =
  | 'none'
  | 'slow'
  | 'refused'
  | 'auth'
  | 'flaky'
  | 'breaks_off'
  | 'hangs'
  | 'max_tokens'
  | 'stop_sequence'
  | 'asks_for_context';
/** `stubborn` never settles, whatever it is told. */
export type Manner = 'ok' | 'fails' | 'throws' | 'hangs' | 'stubborn';
export type PlannedCall =
  | { readonly kind: 'work' | 'risky'; readonly manner: Manner; readonly ms: number }
  | { readonly kind: 'unknown' | 'invalid' }
  | {
      readonly kind: 'delegate';
      readonly child: readonly Step[];
      readonly timeout: number | null;
      readonly max_tokens: number | null;
      readonly background: boolean;
      readonly schema: 'none' | 'mended' | 'never';
    };

const soon = fc.constantFrom(0, 0, 1, 5, 20, 80, 300);
const manner = fc.oneof(
  { weight: 10, arbitrary: fc.constant<Manner>('ok') },
  { weight: 4, arbitrary: fc.constantFrom<Manner>('fails', 'throws', 'hangs') },
  { weight: 1, arbitrary: fc.constant<Manner>('stubborn') },
);
const leaf: fc.Arbitrary<PlannedCall> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ kind: fc.constantFrom('work' as const, 'risky' as const), manner, ms: soon }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constantFrom('unknown' as const, 'invalid' as const) }) },
);
const trouble = fc.oneof(
  { weight: 12, arbitrary: fc.constant<Trouble>('none') },
  {
    weight: 8,
    arbitrary: fc.constantFrom<Trouble>(
      'slow',
      'slow',
      'refused',
      'auth',
      'flaky',
      'breaks_off',
      'hangs',
      'max_tokens',
      'stop_sequence',
      'asks_for_context',
    ),
  },
);

/** Null but for one time in `n`. */
function rarely<T>(n: number, arbitrary: fc.Arbitrary<T>): fc.Arbitrary<T | null> {
  return fc.oneof({ weight: n - 1, arbitrary: fc.constant(null) }, { weight: 1, arbitrary });
}

function delegation(depth: number): fc.Arbitrary<PlannedCall> {
  return fc.record({
    kind: fc.constant('delegate' as const),
    child: steps(depth - 1),
    timeout: rarely(3, fc.integer({ min: 1, max: 3 })),
    max_tokens: rarely(12, fc.constantFrom(5, 15, 25)),
    background: fc.boolean(),
    schema: fc.oneof(
      { weight: 6, arbitrary: fc.constant('none' as const) },
      { weight: 1, arbitrary: fc.constantFrom('mended' as const, 'never' as const) },
    ),
  });
}
function steps(depth: number): fc.Arbitrary<readonly Step[]> {
  const call =
    depth === 0 ? leaf : fc.oneof({ weight: 2, arbitrary: leaf }, { weight: 3, arbitrary: delegation(depth) });
  const step = fc.record({ delay: soon, calls: fc.array(call, { maxLength: 3 }), trouble });
  return fc.array(step, { minLength: 1, maxLength: depth === 0 ? 2 : 3 });
}

/** A planner whose first answer delegates; at most `depth` levels of workers below it. */
export function delegationTree(depth: number): fc.Arbitrary<readonly Step[]> {
  const first = fc.record({
    delay: soon,
    calls: fc
      .tuple(delegation(depth), fc.array(fc.oneof(leaf, delegation(depth)), { maxLength: 3 }))
      .map(([one, more]) => [one, ...more]),
    trouble: fc.constant<Trouble>('none'),
  });
  return fc.tuple(first, steps(depth)).map(([step, rest]) => [step, ...rest]);
}

const SCHEMA = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] };
const usage = { input_tokens: 100, output_tokens: 10 };

/** The scenario of a tree; a later message `afterwards` is answered at once. */
export function scenarioOf(tree: readonly Step[]): Scenario {
  const rules: Rule[] = [];
  const rule = (match: Match, ...responses: Respond[]) =>
    rules.push({
      id: `rule-${rules.length}`,
      match,
      times: responses.length === 1 ? Infinity : responses.length,
      responses,
    });
  let workers = 0;

  function play(plan: readonly Step[], who: Match): void {
    plan.forEach((step, i) => {
      rule({ ...who, turn: 1, call: i + 1 }, ...answers(step, step.calls.flatMap(wire)));
    });
    rule({ ...who, turn: 1, call: plan.length + 1 }, { text: 'end', usage });
    // Each result of a background worker is followed by one call more.
    rule({ ...who, turn: 1 }, { text: 'read', usage });
  }
  function wire(planned: PlannedCall): Call[] {
    switch (planned.kind) {
      case 'work':
      case 'risky':
        return [{ name: planned.kind, input: { manner: planned.manner, ms: planned.ms } }];
      case 'unknown':
        return [{ name: 'no_such_tool', input: {} }];
      case 'invalid':
        return [{ name: 'work', input: { manner: 5 } }];
      case 'delegate': {
        if (workers === MAX_WORKERS) return [];
        workers += 1;
        const task = `task <${workers}>`;
        const who: Match = { role: 'worker', user_contains: task };
        play(planned.child, who);
        const text = planned.schema === 'mended' ? '{"n": 1}' : 'still no JSON';
        for (const turn of [2, 3]) rule({ ...who, turn }, { text, delay_ms: 5, usage });
        return [{ name: 'delegate', input: delegateInput(planned, task) }];
      }
    }
  }
  rule({ role: 'planner', user_contains: 'afterwards' }, { text: 'fine' });
  play(tree, { role: 'planner' });
  return { strict: true, fallback: {}, rules };
}

function delegateInput(
  { child, timeout, max_tokens, background, schema }: Extract<PlannedCall, { kind: 'delegate' }>,
  task: string,
): Record<string, unknown> {
  return {
    tier: child.some(({ calls }) => calls.some(({ kind }) => kind === 'delegate')) ? 'balanced' : 'fast',
    task,
    ...(timeout === null ? {} : { timeout_seconds: timeout }),
    ...(max_tokens === null ? {} : { max_tokens }),
    ...(background ? { background } : {}),
    ...(schema === 'none' ? {} : { output_schema: SCHEMA }),
  };
}

/** More than one: what a call's attempts get in turn. */
function answers({ delay: delay_ms, trouble }: Step, tool_calls: Call[]): Respond[] {
  const whole: Respond = { text: 'a few words', tool_calls, delay_ms, chunk_chars: 4, usage };
  const failing = (error_class: ErrorClass, after_chunks: number | null = null) => ({
    error: { error_class, after_chunks, error_detail: null, status: null, retry_after_seconds: null },
  });
  switch (trouble) {
    case 'none':
      return [whole];
    case 'slow':
      return [{ ...whole, chunk_delay_ms: 40 }];
    case 'refused':
      return [{ delay_ms, ...failing('invalid_request') }];
    case 'auth':
      return [{ delay_ms, ...failing('auth') }];
    case 'flaky':
      return [{ delay_ms, ...failing('server_error') }, whole];
    case 'breaks_off':
      return [{ ...whole, ...failing('network', 2) }];
    case 'hangs':
      return [{ ...whole, hang: true }];
    case 'max_tokens':
    case 'stop_sequence':
      return [{ ...whole, stop_reason: trouble }];
    case 'asks_for_context': {
      const input = { summary: 'more', missing: [{ type: 'other', ref: 'x', hint: 'y' }] };
      return [{ ...whole, tool_calls: [...tool_calls, { name: '_request_context', input }] }];
    }
  }
}
