// What a person sees of a running session: one line each, never wider than the terminal, no codes unless asked.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { drawTree, startLiveTree } from '#cli/live-tree.ts';
import { toJsonLine, toPrintable, toPrintableText } from '#cli/printable-text.ts';
import { createSessionTree } from '#cli/session-tree.ts';
import {
  clip,
  countColumns,
  createStyle,
  formatAge,
  formatDollars,
  formatRoundedDollars,
  groupDigits,
  layOutTable,
  pad,
  splitByWidth,
  wrapWords,
} from '#cli/terminal.ts';
import type { StoredEvent, TransientEvent } from '#client/stream-items.ts';
import { toPusd } from '#protocol/money.ts';

const plain = createStyle(false);
const event = (session_id: string, type: string, payload: object) =>
  ({ id: null, session_id, type, payload }) as unknown as StoredEvent | TransientEvent;
const usage = (input_tokens: number, output_tokens: number, cost_usd: string) => ({
  input_tokens,
  cached_input_tokens: 100,
  cache_creation_input_tokens: 10,
  output_tokens,
  cost_usd,
});

describe('the session tree', () => {
  it('adds up tokens and money of every call and places workers under their caller', () => {
    const tree = createSessionTree('p');
    tree.apply(event('p', 'turn.started', {}));
    expect(tree.apply(event('p', 'route.decided', { chosen_model: 'scripted:deep' }))).toBe(
      'started on scripted:deep, which is simulated',
    );
    expect(tree.apply(event('p', 'route.decided', { chosen_model: 'a:b', chosen_effort: 'low' }))).toBe(
      'started on a:b:low',
    );
    tree.apply(event('p', 'route.decided', { chosen_model: 'scripted:deep' }));
    tree.apply(event('w1', 'session.created', { is_worker: true, parent_session_id: 'p' }));
    tree.apply(event('w2', 'session.created', { is_worker: true, parent_session_id: 'p' }));
    tree.apply(event('g', 'session.created', { is_worker: true, parent_session_id: 'w1' }));
    expect(tree.nodes.map((n) => [n.session_id, n.label, n.depth])).toEqual([
      ['p', 'planner', 0],
      ['w1', 'worker 1', 1],
      ['g', 'worker 3', 2],
      ['w2', 'worker 2', 1],
    ]);
    tree.apply(event('w1', 'llm.call_completed', usage(1, 7, '0.1')));
    tree.apply(event('w1', 'llm.call_completed', usage(2, 3, '0.2')));
    expect(tree.nodes[1]).toMatchObject({ input_tokens: 223, output_tokens: 10, cost: toPusd('0.3') });
  });

  // Promise 20.19: workers in the background come and go while their planner works, waits and reads.
  it('shows that a planner waits for its background workers, and when it has read each', () => {
    const tree = createSessionTree('p');
    const doing = () => tree.nodes.map((node) => `${node.label}: ${node.doing}`);
    tree.apply(event('p', 'turn.started', {}));
    for (const id of ['w1', 'w2']) {
      tree.apply(event(id, 'session.created', { is_worker: true, parent_session_id: 'p' }));
      tree.apply(event(id, 'turn.started', {}));
      tree.apply(event(id, 'llm.call_started', {}));
    }
    tree.apply(event('p', 'llm.call_completed', { ...usage(1, 7, '0.1'), stop_reason: 'tool_use' }));
    tree.apply(event('p', 'llm.call_started', {}));
    tree.apply(event('p', 'llm.call_completed', { ...usage(1, 7, '0.1'), stop_reason: 'end_turn' }));
    expect(doing()).toEqual(['planner: waits for its workers', 'worker 1: thinking', 'worker 2: thinking']);
    tree.apply(event('w2', 'turn.completed', { stop_reason: 'end_turn' }));
    const delivered = event('p', 'delegate.delivered', { worker_session_id: 'w2' });
    expect(tree.apply(delivered)).toBe('reads the result of worker 2');
    tree.apply(event('p', 'llm.call_started', {}));
    expect(doing()).toEqual(['planner: thinking', 'worker 1: thinking', 'worker 2: done, read']);
    tree.apply(event('w1', 'turn.completed', { stop_reason: 'end_turn' }));
    tree.apply(event('p', 'llm.call_completed', { ...usage(1, 7, '0.1'), stop_reason: 'end_turn' }));
    expect(doing()[0]).toBe('planner: thinking');
  });

  it('marks calls without a price, whose cost is not known, in place of $0', () => {
    const tree = createSessionTree('p');
    const drawn = () => drawTree(tree.nodes, { width: 99, height: 9, now: 0, spinner: '', style: plain }).join('\n');
    tree.apply(event('p', 'llm.call_completed', { ...usage(1, 7, '0'), priced: false }));
    expect(drawn()).toMatch(/ unpriced$/);
    expect(drawn()).not.toContain('$0');
    tree.apply(event('p', 'llm.call_completed', usage(1, 7, '0.5')));
    expect(drawn()).toMatch(/ \$0\.5000 \+ 1 unpriced$/);
  });

  // Promise 04.26: A person at a terminal reads which named tools a worker does not get.
  it('says which of the tools that a planner named its worker does not get', () => {
    const tree = createSessionTree('p');
    const started = (allowed_tool_count: number | null, dropped_tools: string[]) =>
      tree.apply(event('p', 'delegate.started', { allowed_tool_count, dropped_tools, worker_name: null }));
    expect(started(3, ['delegate', 'memory_add'])).toBe('a worker does not get delegate, memory_add');
    expect(started(1, [])).toBeNull();
    expect(started(null, ['delegate'])).toBeNull();
  });

  it('calls named workers by their names, and is silent on approvals where nobody is asked', () => {
    const tree = createSessionTree('p', { worker_name: 'lead', approval_mode: 'approve_all' });
    tree.apply(event('w1', 'session.created', { is_worker: true, parent_session_id: 'p', worker_name: 'judge' }));
    expect(tree.nodes.map((n) => n.label)).toEqual(['lead', 'judge 1']);
    const asked = { confirmation_request_id: 'c', tool_name: 'write_file', input_summary: 'x' };
    expect(tree.apply(event('p', 'tool.confirmation_requested', asked))).toBeNull();
    const other = createSessionTree('p', { worker_name: null, approval_mode: 'interactive' });
    expect(other.apply(event('p', 'tool.confirmation_requested', asked))).toBe('asks for approval of write_file: x');
  });

  it('names the tool in use, and several of a kind once', () => {
    const tree = createSessionTree('p');
    const called = (id: string, name: string) =>
      tree.apply(event('p', 'tool.called', { tool_use_id: id, tool_name: name }));
    expect(called('a', 'delegate')).toBe('runs delegate');
    called('b', 'delegate');
    expect(tree.nodes[0]!.doing).toBe('delegate ×2');
    called('c', 'grep');
    expect(tree.nodes[0]!.doing).toBe('3 tools');
    tree.apply(event('p', 'tool.completed', { tool_use_id: 'a', success: true }));
    tree.apply(event('p', 'tool.completed', { tool_use_id: 'b', success: true }));
    expect(tree.nodes[0]!.doing).toBe('grep');
    expect(tree.apply(event('p', 'tool.failed', { tool_use_id: 'c', error_class: 'timeout' }))).toBe(
      'grep failed: timeout',
    );
  });
});

const view = (width: number, height = 24) => ({ width, height, now: 0, spinner: '⠋', style: plain });

describe('the live tree', () => {
  const text = fc.string({ unit: 'grapheme', maxLength: 60 });
  it('never exceeds its width or height and holds no control character without colour', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 20, max: 200 }),
        fc.integer({ min: 3, max: 30 }),
        fc.array(
          fc.record({
            doing: text,
            model: text,
            tokens: fc.nat(2_000_000_000),
            pusd: fc.bigInt({ min: 0n, max: 2_000_000n * 10n ** 12n }),
            ended: fc.boolean(),
          }),
          { minLength: 1, maxLength: 40 },
        ),
        (width, height, workers) => {
          const tree = createSessionTree('p');
          for (const [i, { doing, model, tokens, pusd, ended }] of workers.entries()) {
            tree.apply(event(`w${i}`, 'session.created', { is_worker: true, parent_session_id: 'p' }));
            const node = tree.nodes.find(({ session_id }) => session_id === `w${i}`)!;
            Object.assign(node, { doing, model, input_tokens: tokens, output_tokens: tokens, cost: pusd });
            Object.assign(node, { started_at: -tokens, ended_at: ended ? 0 : null });
          }
          const lines = drawTree(tree.nodes, view(width, height));
          expect(lines.length).toBeLessThanOrEqual(Math.max(2, height));
          for (const line of lines) {
            expect(countColumns(line)).toBeLessThanOrEqual(width);
            expect(line).not.toMatch(/\p{Cc}/u);
          }
        },
      ),
    );
  });

  it('shows model, work, tokens, cost and age of each session in columns', () => {
    const tree = createSessionTree('p');
    const started = (id: string, second: number) => ({
      ...event(id, 'turn.started', {}),
      timestamp: `1969-12-31T23:59:${second}.000Z`,
    });
    tree.apply(started('p', 50));
    tree.apply(event('p', 'route.decided', { chosen_model: 'anthropic:claude-opus-5' }));
    tree.apply(event('p', 'llm.call_completed', usage(12_340, 700, '1.5')));
    tree.apply(event('p', 'tool.called', { tool_use_id: 'd', tool_name: 'delegate' }));
    tree.apply(event('w', 'session.created', { is_worker: true, parent_session_id: 'p' }));
    tree.apply(started('w', 57));
    tree.apply(event('w', 'route.decided', { chosen_model: '模型:小' }));
    tree.apply(event('w', 'tool.use_end', { tool_use_id: 't', final_input: { path: 'src/a.ts' } }));
    tree.apply(event('w', 'tool.called', { tool_use_id: 't', tool_name: 'edit_file' }));
    expect(drawTree(tree.nodes, view(79))).toEqual(
      [
        '⠋ planner    anthropic:claude-opus-5 delegate           12k↑ 700↓ $1.5000 10s',
        '⠋   worker 1 模型:小                 edit_file src/a.ts                    3s',
      ].map((line) =>
        expect.stringMatching(new RegExp(`^${line.replaceAll(/[$.]/g, '\\$&').replaceAll(/ {2,}/g, ' +')}$`)),
      ),
    );
    const [first, second] = drawTree(tree.nodes, view(79));
    expect([countColumns(first!), countColumns(second!)]).toEqual([79, 79]);
  });

  it('counts ended workers in one line where the terminal is too low for all', () => {
    const tree = createSessionTree('p');
    for (let i = 0; i < 30; i++) {
      tree.apply(event(`w${i}`, 'session.created', { is_worker: true, parent_session_id: 'p' }));
      if (i < 25) tree.apply({ ...event(`w${i}`, 'turn.completed', {}), timestamp: '1970-01-01T00:00:00.000Z' });
    }
    const lines = drawTree(tree.nodes, view(79, 10));
    expect(lines).toHaveLength(10);
    expect(lines.at(-1)).toBe('  and 22 more workers: 22 ended, $0.0000');
    for (const worker of [26, 27, 28, 29, 30]) expect(lines.join('\n')).toContain(`worker ${worker}`);
  });

  it('is repainted in place and ends without a spinner', () => {
    const tree = createSessionTree('p');
    const written: string[] = [];
    const live = startLiveTree(tree, { write: (text) => written.push(text), columns: 80 }, plain);
    tree.apply(event('p', 'turn.completed', {}));
    live.stop();
    const last = written.join('').split('\x1b[J').at(-1)!;
    expect(last).toMatch(/^✓ planner/);
    expect(last).toContain('\x1b[?25h');
    expect(written.join('')).toContain('\x1b[1A');
  });
});

describe('figures', () => {
  it('are rounded half up in integers: four places, two from $100 on', () => {
    expect(formatRoundedDollars(toPusd('0.00005'))).toBe('$0.0001');
    expect(formatRoundedDollars(toPusd('0.00004999'))).toBe('$0.0000');
    expect(formatRoundedDollars(toPusd('12.3'))).toBe('$12.3000');
    expect(formatRoundedDollars(toPusd('1234567.005'))).toBe('$1,234,567.01');
  });
  it('keep every digit where they are exact', () => {
    expect(['0', '0.000000000001', '1234567.5'].map(formatDollars)).toEqual(['$0', '$0.000000000001', '$1,234,567.5']);
  });
  it('are short at a glance', () => {
    expect([0, 59_999, 60_000, 7_200_000, 200_000_000].map(formatAge)).toEqual(['0s', '59s', '1m', '2h', '2d']);
  });
  it('are grouped by thousands', () => {
    expect([0, 999, 1000, 1234567].map(groupDigits)).toEqual(['0', '999', '1,000', '1,234,567']);
  });
});

describe('a table', () => {
  const columns = [{ title: 'session' }, { title: 'cost', align: 'right' as const }];
  it('lines its columns up and draws a rule where asked', () => {
    expect(layOutTable(columns, [['planner', '$1.5'], null, ['total', '$12.25']], 80)).toEqual([
      'session    cost',
      '───────────────',
      'planner    $1.5',
      '───────────────',
      'total    $12.25',
    ]);
  });
  it('cuts the first column rather than exceed its width', () => {
    const lines = layOutTable(columns, [['x'.repeat(100), '$1']], 40);
    for (const line of lines) expect(line.length).toBeLessThanOrEqual(40);
    expect(lines[2]).toMatch(/…\s+\$1$/);
  });
  it('leaves columns out by their rank rather than clip a figure, and never what is copied', () => {
    const many = [
      { title: 'session', whole: true },
      { title: 'model', least: 8, drop: 1 },
      { title: 'calls', align: 'right' as const, drop: 2 },
      { title: 'cost', align: 'right' as const },
    ];
    const row = ['sess_01JZZZZZZZZZZZZZZZZZZZZZZZ', 'm'.repeat(60), '1,234,567', '$1,234,567.123456789012'];
    expect(layOutTable(many, [row], 80)[2]).toBe(`${row[0]}  ${'m'.repeat(10)}…  ${row[2]}  ${row[3]}`);
    expect(layOutTable(many, [row], 70)[2]).toBe(`${row[0]}  ${row[2]}  ${row[3]}`);
    expect(layOutTable(many, [row], 60)[2]).toBe(`${row[0]}  ${row[3]}`);
  });
});

describe('text', () => {
  it('takes the columns a terminal gives it', () => {
    expect(['abc', '日本', '🙂', '👨‍👩‍👧', 'e\u0301'].map(countColumns)).toEqual([3, 4, 2, 2, 1]);
    expect(pad('日本語', 5)).toBe('日本…');
    expect(pad('日本語', 4)).toBe('日… ');
    expect(clip('👨‍👩‍👧👨‍👩‍👧', 3)).toBe('👨‍👩‍👧…');
    expect(pad('é', 3, 'right')).toBe('  é');
  });
  it('is broken between words, and loses nothing', () => {
    expect(wrapWords('one two three', 8)).toEqual(['one two', 'three']);
    expect(wrapWords('a 日本日本 b', 4)).toEqual(['a', '日本', '日本', 'b']);
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme' }), fc.integer({ min: 4, max: 20 }), (text, width) => {
        expect(splitByWidth(text, width).join('')).toBe(text);
        for (const piece of splitByWidth(text, width)) expect(countColumns(piece)).toBeLessThanOrEqual(width);
      }),
    );
  });
  it('moves no cursor and turns no direction', () => {
    expect(toPrintable('a\x1b[2Jb\r\nc\u202ed\u2028e')).toBe('a [2Jb c d e');
    expect(toPrintable('a\u200bb\u2060c\ufeffd\u00ade\u{e0041}f')).toBe('a b c d e f');
    expect(toPrintable('👨‍👩‍👧')).toBe('👨‍👩‍👧');
    expect(toPrintableText('one\r\n\ttwo\x1b]52;c;eA==\x07\u009b2J\rthree')).toBe('one\n\ttwo ]52;c;eA==  2J three');
  });
  it('is the same JSON for whoever parses it, with nothing that a terminal acts on', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        const line = toJsonLine({ text: `${text}\u009b2J\u202e\u{e0041}\x7f` });
        expect(line.slice(0, -1)).not.toMatch(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u);
        expect(JSON.parse(line).text).toBe(`${text}\u009b2J\u202e\u{e0041}\x7f`);
      }),
    );
  });
});
