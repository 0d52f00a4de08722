// Fields of events that had another name in an earlier version: what is stored is read by today's (02 §9.3).
import { expect, test } from 'vitest';
import { unpackPayload } from '#core/policy/journal/stored-payload.ts';
import { CATALOG } from '#protocol/event.ts';

const PLACE = { session_id: 'sess_01KR3ZH48KGGGGGGGGGGGGGGGG', turn_id: null };
const STORED = { chosen_model: 'a:b', winner_index: 4, elapsed_ms: 1, chain: [] };
const read = (stored: Readonly<Record<string, unknown>>) => unpackPayload('route.decided', stored, PLACE);

test('a stored fallback_dearer is read as fallback_costlier', () => {
  const payload = read({ ...STORED, fallback_dearer: true });
  expect(payload).toMatchObject({ fallback_costlier: true });
  expect(payload).toEqual(read({ ...STORED, fallback_costlier: true }));
  expect(Object.keys(payload)).toEqual(Object.keys(CATALOG['route.decided'].payload.shape));
});

test('a stored route without either is no costlier fallback', () => {
  expect(read(STORED)).toMatchObject({ fallback_costlier: false });
});
