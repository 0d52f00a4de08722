// Opens a session, submits one message and prints what happens until the turn has ended:
// `node watch.mjs "say hello"`, or with the address of a server behind it.
import { createMetisClient } from 'metis-server/client';

const client = createMetisClient({
  baseUrl: process.argv[3] ?? 'http://127.0.0.1:8420',
  token: process.env.METIS_TOKEN ?? null,
});
const session = await client.createSession({ workspace_path: process.cwd() });

for await (const event of client.turn(
  session.id,
  { content: process.argv[2] ?? 'What is in this folder?' },
  { include_worker_sessions: true },
)) {
  const who = event.session_id === session.id ? 'planner' : 'worker';
  if (event.type === 'text.delta' && who === 'planner') process.stdout.write(event.payload.text);
  if (event.type === 'tool.called') console.log(`\n[${who} runs ${event.payload.tool_name}]`);
  if (event.type === 'turn.completed' && who === 'planner') console.log(`\n${event.payload.stop_reason}`);
}

const { totals } = await client.getCost({ parent_session: session.id, from: 'all' });
console.log(`$${totals.cost_usd} for ${totals.call_count} model call${totals.call_count === 1 ? "" : "s"}`);
