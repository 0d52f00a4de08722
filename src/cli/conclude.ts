// `metis conclude`: lets the running turn of a session answer with what it has (20 §3).
import { ApiError, createMetisClient } from '#client/client.ts';
import type { ServerAddress } from '#client/request.ts';
import { toJsonLine } from './printable-text.ts';
import { askServer, printMessage, type ServerFlags, type Terminal } from './terminal.ts';

/** Exit code: 0 when the turn concludes, 1 when the session has no running turn or the server could not say. */
export async function concludeSession(
  terminal: Terminal,
  server: ServerAddress,
  sessionId: string,
  { json }: Pick<ServerFlags, 'json'>,
): Promise<number> {
  const { stdout, stderr } = terminal;
  return askServer(terminal, server, async () => {
    const client = createMetisClient(server);
    const { current_turn_id } = await client.getSession(sessionId);
    if (current_turn_id === null) {
      printMessage(stderr, `no turn runs in ${sessionId}`);
      return 1;
    }
    try {
      const concluded = await client.concludeTurn(sessionId, current_turn_id);
      if (json) stdout.write(toJsonLine(concluded));
      else if (concluded.applied) stdout.write(`turn ${concluded.turn_id} answers with what it has\n`);
      else stdout.write(`turn ${concluded.turn_id} was to conclude already\n`);
      return 0;
    } catch (error) {
      if (!(error instanceof ApiError) || error.code !== 'turn_not_running') throw error;
      printMessage(stderr, error.message);
      return 1;
    }
  });
}
