// What a person sees of a running session: one line each, never wider than the terminal, no codes unless asked.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { nodeLine, roundedUsd, startLiveTree } from '../../../src/cli/live-tree.ts';
import { createSessionTree } from '../../../src/cli/session-tree.ts';
import { createStyle, grouped } from '../../../src/cli/style.ts';
import { tableLines } from '../../../src/cli/table.ts';
import type { StoredEvent, TransientEvent } from '../../../src/client/events.ts';
import { toPusd } from '../../../src/kernel/money.ts';

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
    expect(tree.apply(event('p', 'route.decided', { chosen_model: 'scripted:deep' }))).toBe('started on scripted:deep');
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

describe('a line of the live tree', () => {
  it('never exceeds its width and holds no escape code without colour', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 30, max: 200 }),
        fc.record({ doing: fc.string({ maxLength: 60 }), model: fc.string({ maxLength: 60 }), tokens: fc.nat() }),
        (width, { doing, model, tokens }) => {
          const [node] = createSessionTree('p').nodes;
          Object.assign(node!, { doing, model, input_tokens: tokens, output_tokens: tokens, cost: toPusd('12.345') });
          const line = nodeLine(node!, { width, spinner: '⠋', style: plain });
          expect(line.length).toBeLessThanOrEqual(width);
          expect(line).not.toContain('\x1b');
        },
      ),
    );
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
  it('are rounded half up to four places in integers', () => {
    expect(roundedUsd(toPusd('0.00005'))).toBe('0.0001');
    expect(roundedUsd(toPusd('0.00004999'))).toBe('0.0000');
    expect(roundedUsd(toPusd('12.3'))).toBe('12.3000');
  });
  it('are grouped by thousands', () => {
    expect([0, 999, 1000, 1234567].map(grouped)).toEqual(['0', '999', '1,000', '1,234,567']);
  });
});

describe('a table', () => {
  const columns = [{ title: 'session' }, { title: 'cost', align: 'right' as const }];
  it('lines its columns up and draws a rule where asked', () => {
    expect(tableLines(columns, [['planner', '$1.5'], null, ['total', '$12.25']], 80)).toEqual([
      'session    cost',
      '───────────────',
      'planner    $1.5',
      '───────────────',
      'total    $12.25',
    ]);
  });
  it('cuts the first column rather than exceed its width', () => {
    const lines = tableLines(columns, [['x'.repeat(100), '$1']], 40);
    for (const line of lines) expect(line.length).toBeLessThanOrEqual(40);
    expect(lines[2]).toMatch(/…\s+\$1$/);
  });
});
