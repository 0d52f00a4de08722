// The yardstick: what any server in this place has to do for one turn, and nothing else. One route that forwards a
// streamed completion as it comes and then stores eight rows in one transaction, and one that reads a page of rows.
// Arguments: provider's origin, path of the database file.
import Database from 'better-sqlite3';
import { createParser } from 'eventsource-parser';
import Fastify from 'fastify';

const [origin, file] = process.argv.slice(2);
const ROWS = 8;
const PAGE_ROWS = 5000;

const db = new Database(file);
db.pragma('journal_mode = WAL');
db.pragma('synchronous = NORMAL');
db.exec(
  'CREATE TABLE rows (id INTEGER PRIMARY KEY, turn TEXT NOT NULL, type TEXT NOT NULL, payload TEXT NOT NULL) STRICT',
);
const insert = db.prepare('INSERT INTO rows (turn, type, payload) VALUES (?, ?, ?)');
const store = db.transaction((turn, payload) => {
  for (let i = 0; i < ROWS; i++) insert.run(turn, `type ${i}`, payload);
});
const page = db.prepare('SELECT id, turn, type, payload FROM rows WHERE id < ? ORDER BY id DESC LIMIT ?');
db.transaction(() => {
  const payload = JSON.stringify({ content: [{ type: 'text', text: 'x'.repeat(200) }] });
  for (let i = 0; i < PAGE_ROWS; i++) insert.run('first', 'message', payload);
})();

let turns = 0;
const app = Fastify();
app.post('/relay', async (request, reply) => {
  const upstream = await fetch(`${origin}/v1/messages`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', accept: 'text/event-stream' },
    body: JSON.stringify({ model: 'bench', stream: true, messages: [{ role: 'user', content: request.body.content }] }),
  });
  reply.hijack();
  const out = reply.raw;
  out.writeHead(200, { 'content-type': 'text/event-stream' });
  let text = '';
  const parser = createParser({
    onEvent(event) {
      const { delta } = JSON.parse(event.data);
      if (typeof delta?.text !== 'string') return;
      text += delta.text;
      out.write(`data: ${JSON.stringify({ text: delta.text })}\n\n`);
    },
  });
  const decoder = new TextDecoder();
  for await (const piece of upstream.body) parser.feed(decoder.decode(piece, { stream: true }));
  turns += 1;
  store(`turn ${turns}`, JSON.stringify({ text: text.slice(0, 200) }));
  out.end('data: {"done":true}\n\n');
});
app.get('/rows', (request) => {
  const { before = PAGE_ROWS + 1, limit = 50 } = request.query;
  return { rows: page.all(Number(before), Number(limit)).reverse() };
});

const url = await app.listen({ host: '127.0.0.1', port: 0 });
process.stdout.write(`listens on ${url}\n`);
// Whoever started this process holds the other end of its input.
process.stdin.resume().on('end', () => process.exit(0));
