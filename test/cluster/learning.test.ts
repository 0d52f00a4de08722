// What several nodes learn of one workspace: each from the trees it holds, together one sum (12 §12.3, 16 §9).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { tempFolder } from '../support/engine.ts';
import { startReal, startStrictFake } from '../support/real-server.ts';
import { registryAt } from '../support/registry-at.ts';
import { ownSchema, postgresService } from '../support/services.ts';
import { until } from '../support/until.ts';

const { url, missing } = await postgresService();
const TURNS = 4;

describe.skipIf(url === null)(`learning on several nodes${missing && `, skipped: ${missing}`}`, () => {
  test('turns of one shape on two nodes at once are recorded once each, and whoever knew nothing of the other loses none', async () => {
    const schema = await ownSchema(url!);
    onTestFinished(() => schema.drop());
    const [home, root] = [tempFolder(), tempFolder()];
    const fake = await startStrictFake(() => ({ text: 'ok', usage: { input: 10, output: 5 } }));
    const workspace = path.join(root, 'app');
    fs.mkdirSync(workspace);
    const start = (name: string) =>
      startReal({
        folder: path.join(home, name),
        registry: registryAt(fake),
        config: {
          database: { url: schema.url },
          cluster: { name: schema.name, node_name: name, lease_seconds: 3, shared_roots: [root] },
        },
      });
    const [a, b] = [await start('a'), await start('b')];
    const one = async (node: typeof a) => {
      const session = await node.session(workspace, 'anthropic:claude-haiku-4-5');
      return node.turn(session, 'refactor the module');
    };
    // At the same moment both meet the shape for the first time.
    const nodes = Array.from({ length: TURNS }, (_, i) => (i % 2 === 0 ? a : b));
    const turns = await Promise.all(nodes.map(one));
    const learned = async () => {
      const { body } = await a.call('GET', `/patterns?workspace_path=${encodeURIComponent(workspace)}`);
      const shapes: readonly { outcomes: readonly { sample_size: number }[] }[] = body.patterns;
      return shapes.flatMap(({ outcomes }) => outcomes.map(({ sample_size }) => sample_size));
    };
    await until(async () => (await learned())[0] === TURNS);
    expect(await learned()).toEqual([TURNS]);
    for (const { id } of turns) {
      const told = await a.engine.store.events.listOfTurn(id as never, ['pattern.recorded', 'eval.completed']);
      expect(told.map(({ type }) => type).sort()).toEqual(['eval.completed', 'pattern.recorded']);
    }
    expect([...a.log, ...b.log].filter(({ msg }) => msg.includes('nothing was learned'))).toEqual([]);
    // No place in the journal: ids of different trees come in no order.
    expect(await a.engine.store.meta('learning_cursor')).toBeNull();
  });
});
