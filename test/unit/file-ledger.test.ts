// What sessions know of files, and which delegation changed what behind another's reading (20 §1).
import { describe, expect, it } from 'vitest';
import { createFileLedger } from '#core/engine/state/file-ledger.ts';
import type { SessionId, ToolUseId, TurnId } from '#protocol/ids.ts';

const id = (name: string) => name as SessionId;
const under = (planner: string, call: string) => ({
  tool_use_id: call as ToolUseId,
  parent_turn_id: `turn of ${planner}` as TurnId,
  parent_session_id: id(planner),
});

describe('overlaps', () => {
  it('count what a sibling, or a worker below it, changed after the first reading, and nothing of its own', () => {
    const ledger = createFileLedger();
    ledger.open(under('root', 'a'), id('A'));
    ledger.open(under('root', 'b'), id('B'));
    ledger.open(under('B', 'c'), id('C'));
    ledger.knowledge(id('A')).recordRead('x', '1');
    ledger.knowledge(id('C')).recordWrite('x', '2');
    ledger.knowledge(id('A')).recordRead('x', '2');
    ledger.knowledge(id('A')).recordWrite('x', '3');
    ledger.knowledge(id('A')).recordWrite('y', '3');
    expect(ledger.overlaps(id('A'), ['x', 'y'])).toEqual(['x']);
    expect(ledger.overlaps(id('C'), ['x'])).toEqual([]);
    expect(ledger.overlaps(id('B'), ['x', 'y'])).toEqual(['x']);
    ledger.forget(id('B'));
    expect(ledger.overlaps(id('A'), ['x'])).toEqual(['x']);
    ledger.forget(id('A'));
    expect(ledger.overlaps(id('A'), ['x'])).toEqual([]);
  });

  it('know nothing of other turns', () => {
    const ledger = createFileLedger();
    ledger.open(under('one', 'a'), id('A'));
    ledger.open(under('two', 'b'), id('B'));
    ledger.knowledge(id('A')).recordRead('x', '1');
    ledger.knowledge(id('B')).recordWrite('x', '2');
    expect(ledger.overlaps(id('A'), ['x'])).toEqual([]);
  });
});

describe('what is known of files', () => {
  it('is bounded: the oldest is forgotten, of the session that was longest unused', () => {
    const ledger = createFileLedger();
    const [old, busy] = [ledger.knowledge(id('old')), ledger.knowledge(id('busy'))];
    old.recordRead('first', '1');
    old.recordRead('second', '1');
    for (let i = 0; i < 49_999; i++) busy.recordRead(`f${i}`, '1');
    expect([old.hash('first'), old.hash('second'), busy.hash('f0')]).toEqual([null, '1', '1']);
    busy.recordRead('one more', '1');
    busy.recordRead('and more', '1');
    expect([old.hash('second'), busy.hash('f0'), busy.hash('and more')]).toEqual([null, null, '1']);
    ledger.forget(id('busy'));
    expect(busy.hash('and more')).toBeNull();
  });
});
