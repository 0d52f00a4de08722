// Pages of a session with 5,000 messages and as many events: 50 at an end, 50 from the middle, the largest page; and
// pages of the list of sessions. The relay reads rows.
import path from 'node:path';
import { createClient, timed } from '../client.mjs';
import { atMost } from '../limits.mjs';
import { startServer } from '../processes.mjs';
import { seed } from '../seed.mjs';
import { median } from '../stats.mjs';

export const name = 'pages';

const MESSAGES = 5000;
const LIMIT = 50;
const MAX_LIMIT = 200;
const READS = 100;
const SESSIONS = 5000;
const LIMIT_MS = 5;

export async function measure(bench) {
  const data = path.join(bench.folder, 'pages');
  bench.note(`storing ${MESSAGES} messages and ${SESSIONS} sessions`);
  const id = await seed(bench, data, { sessions: SESSIONS, events: 0, longest: MESSAGES });
  const server = await startServer(data, bench.provider);
  const client = createClient(server.url);
  try {
    const messages = `/sessions/${id}/messages`;
    const events = `/sessions/${id}/events`;
    const middle = await middleId(client, messages);
    const [bare, bareMiddle] = [`?limit=${LIMIT}`, `?limit=${LIMIT}&before=${MESSAGES / 2}`];
    const pages = [
      { row: `newest ${LIMIT} of ${MESSAGES} messages`, own: `${messages}?limit=${LIMIT}`, bare },
      { row: `${LIMIT} from the middle`, own: `${messages}?limit=${LIMIT}&before=${middle}`, bare: bareMiddle },
      { row: `newest ${MAX_LIMIT}`, own: `${messages}?limit=${MAX_LIMIT}`, bare: `?limit=${MAX_LIMIT}` },
      { row: `oldest ${LIMIT} of ${MESSAGES} events`, own: `${events}?limit=${LIMIT}`, bare },
      {
        row: `${LIMIT} events from the middle`,
        own: `${events}?limit=${LIMIT}&cursor=${await middleCursor(client, events)}`,
        bare: bareMiddle,
      },
      { row: `newest ${LIMIT} of ${SESSIONS} sessions`, own: `/sessions?limit=${LIMIT}`, bare },
      {
        row: `${LIMIT} sessions from the middle`,
        own: `/sessions?limit=${LIMIT}&cursor=${await middleCursor(client, '/sessions')}`,
        bare: bareMiddle,
      },
    ];
    const rows = [];
    for (const { row, own, bare } of pages) {
      const rounds = await bench.rounds({
        relay: () => medianOf(() => bench.relayClient.get(`/rows${bare}`)),
        metis: () => medianOf(() => client.get(own)),
      });
      rows.push({ row, unit: 'ms', better: 'lower', ...rounds, limit: atMost(LIMIT_MS) });
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

/** The cursor of the page in the middle of a list of about as many rows as there are messages. */
async function middleCursor(client, list) {
  let cursor = '';
  for (let read = 0; read < MESSAGES / 2; read += MAX_LIMIT) {
    const page = await client.get(`${list}?limit=${MAX_LIMIT}${cursor && `&cursor=${cursor}`}`);
    cursor = encodeURIComponent(page.next_cursor);
  }
  return cursor;
}

async function medianOf(read) {
  const all = [];
  for (let i = 0; i < READS; i++) all.push(await timed(read));
  return median(all);
}
