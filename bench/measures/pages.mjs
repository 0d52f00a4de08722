// Pages of a session with 5,000 messages: the newest 50, 50 from the middle, the largest page. The relay reads rows.
import path from 'node:path';
import { createClient, timed } from '../client.mjs';
import { startServer } from '../processes.mjs';
import { seed } from '../seed.mjs';
import { median } from '../stats.mjs';

export const name = 'pages';

const MESSAGES = 5000;
const LIMIT = 50;
const MAX_LIMIT = 200;
const READS = 100;

export async function measure(bench) {
  const data = path.join(bench.folder, 'pages');
  bench.note(`storing ${MESSAGES} messages`);
  const id = await seed(bench, data, { sessions: 0, events: 0, longest: MESSAGES });
  const server = await startServer(data, bench.provider);
  const client = createClient(server.url);
  try {
    const messages = `/sessions/${id}/messages`;
    const middle = await middleId(client, messages);
    const pages = [
      { row: `newest ${LIMIT} of ${MESSAGES} messages`, own: `?limit=${LIMIT}`, bare: `?limit=${LIMIT}` },
      {
        row: `${LIMIT} from the middle`,
        own: `?limit=${LIMIT}&before=${middle}`,
        bare: `?limit=${LIMIT}&before=${MESSAGES / 2}`,
      },
      { row: `newest ${MAX_LIMIT}`, own: `?limit=${MAX_LIMIT}`, bare: `?limit=${MAX_LIMIT}` },
    ];
    const rows = [];
    for (const { row, own, bare } of pages) {
      const rounds = await bench.rounds({
        relay: () => medianOf(() => bench.relayClient.get(`/rows${bare}`)),
        metis: () => medianOf(() => client.get(messages + own)),
      });
      rows.push({ row, unit: 'ms', better: 'lower', ...rounds });
    }
    return rows;
  } finally {
    client.close();
    await server.stop();
  }
}

async function middleId(client, messages) {
  let before = '';
  for (let read = 0; read < MESSAGES / 2; read += MAX_LIMIT) {
    const page = await client.get(`${messages}?limit=${MAX_LIMIT}${before}`);
    before = `&before=${page.messages[0].id}`;
  }
  return before.slice('&before='.length);
}

async function medianOf(read) {
  const all = [];
  for (let i = 0; i < READS; i++) all.push(await timed(read));
  return median(all);
}
