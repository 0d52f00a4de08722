// Hot reload with the last good parse kept (03 §6.4, Acceptance 11).
import { describe, expect, it } from 'vitest';
import { policyVersion } from '#core/policy/routing/policy-file.ts';
import {
  findUnreported,
  layerErrors,
  markReported,
  nextLayer,
  policiesInForce,
  UNREAD,
} from '#core/policy/routing/policy-layers.ts';
import type { SessionId } from '#protocol/ids.ts';
import { GPT, HAIKU, OPUS, registryOf } from './world.ts';

const known = { registry: registryOf(), configDefault: null };
const BROKEN =
  'default: haiku\ntiers: { fast: haiku }\nrules: [{ use: opus, when: { message_matches: "(" } }, { use: opus, when: { foo: 1 } }]';
const [A, B] = ['sess_a' as SessionId, 'sess_b' as SessionId];
const bytes = (text: string | null) => (text === null ? null : Buffer.from(text));

/** Turn after turn with the given files; a file's stamp is its content unless one is given. */
function turns() {
  let layers = { workspace: UNREAD, global: UNREAD };
  let now = 0;
  return (
    workspace: string | null,
    global: string | null = null,
    { stamp = String(workspace), root = A }: { stamp?: string; root?: SessionId } = {},
  ) => {
    now += 1000;
    const own = { path: '/w/.metis/routing.yaml', bytes: bytes(workspace), stamp };
    const shared = { path: '/g/routing.yaml', bytes: bytes(global), stamp: String(global) };
    const next = {
      workspace: nextLayer(layers.workspace, own, { kind: 'workspace', registry: known.registry, now }),
      global: nextLayer(layers.global, shared, { kind: 'global', registry: known.registry, now }),
    };
    const invalid = [findUnreported(next.workspace, root), findUnreported(next.global, root)].filter(
      (fault) => fault !== null,
    );
    layers = { workspace: markReported(next.workspace, root), global: markReported(next.global, root) };
    return { ...policiesInForce(layers, known), layers, invalid };
  };
}

describe('policy files between turns', () => {
  it('are in force from the turn after an edit, and gone after their deletion', () => {
    const turn = turns();
    expect(turn(null).policies.workspace_default).toBeNull();
    expect(turn('default: opus').policies.workspace_default).toBe(OPUS);
    expect(turn('default: gpt', 'global_default: haiku').policies).toMatchObject({
      workspace_default: GPT,
      global_default: HAIKU,
    });
    const gone = turn(null);
    expect(gone.policies.workspace_default).toBeNull();
    expect(gone.version).toBeNull();
    expect(turn('').policies.workspace_default).toBeNull();
  });

  it('keep the last good parse and report a broken content once with all its faults', () => {
    const turn = turns();
    const good = turn('default: opus').version;
    const broken = turn(BROKEN);
    expect(broken.invalid).toEqual([
      {
        policy_path: '/w/.metis/routing.yaml',
        errors: [
          'tiers: must define all three slots',
          expect.stringContaining('message_matches: Invalid regular expression'),
          'rules[1].when: unknown predicate key(s) [foo]',
        ],
        using_last_known_good: true,
      },
    ]);
    expect(broken.policies.workspace_default).toBe(OPUS);
    expect(broken.version).toBe(good);
    expect(layerErrors(broken.layers)).toHaveLength(3);
    expect(turn(BROKEN).invalid).toEqual([]);
    expect(turn(BROKEN, null, { stamp: 'touched' }).invalid).toEqual([]);
    expect(turn(`${BROKEN}\n# still`).invalid).toHaveLength(1);

    const fixed = turn('default: gpt');
    expect(fixed.invalid).toEqual([]);
    expect(fixed.policies.workspace_default).toBe(GPT);
    expect(fixed.version).toBe(policyVersion(null, Buffer.from('default: gpt')));
    expect(layerErrors(fixed.layers)).toEqual([]);
  });

  it('report a broken content to every tree of sessions that meets it, once each', () => {
    const turn = turns();
    const told = (root: SessionId, file = BROKEN) => turn(file, null, { root }).invalid.length;
    expect([told(A), told(B), told(A), told(B)]).toEqual([1, 1, 0, 0]);
    expect([told(B, 'rules: 5'), told(A, 'rules: 5')]).toEqual([1, 1]);
  });

  it('count a file that was never good as absent', () => {
    const turn = turns();
    const first = turn(BROKEN, 'global_default: opus');
    expect(first.invalid).toMatchObject([{ using_last_known_good: false }]);
    expect(first.policies).toMatchObject({ workspace_default: null, global_default: OPUS });
    expect(first.version).toBe(policyVersion(Buffer.from('global_default: opus'), null));
  });

  it('are not parsed again while the stamp stays', () => {
    const turn = turns();
    turn('default: opus', null, { stamp: 'same' });
    expect(turn('default: gpt', null, { stamp: 'same' }).policies.workspace_default).toBe(OPUS);
  });

  it('keep the time of the parse in force', () => {
    const turn = turns();
    turn('default: opus');
    turn('default: opus');
    expect(turn(BROKEN).layers.workspace.good?.loaded_at).toBe(1000);
    expect(turn('default: gpt').layers.workspace.good?.loaded_at).toBe(4000);
  });

  it('are reported apart when both are broken', () => {
    const both = turns()('rules: 1', 'rules: 2');
    expect(both.invalid.map((fault) => fault.policy_path)).toEqual(['/w/.metis/routing.yaml', '/g/routing.yaml']);
  });
});
