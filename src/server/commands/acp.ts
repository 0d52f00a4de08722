// `metis acp`: the ACP agent over stdin and stdout, for the editor that started it (19 §4, §5).
import { randomUUID } from 'node:crypto';
import { Readable } from 'node:stream';
import { toPrintable } from '#cli/style.ts';
import { createMetisClient } from '#client/client.ts';
import { systemClock } from '#protocol/clock.ts';
import { StartupError } from '#protocol/errors.ts';
import { type CommandContext, refuse } from '../context.ts';
import { type AttachFlags, attach } from '../door/attach.ts';

/** Of a message from the editor; a larger one ends the agent. */
const MAX_FRAME_BYTES = 10 * 1024 * 1024;

/** Until stdin ends. Exit code: 0, or 1 when no server could be found or started. */
export async function serveAcp(context: CommandContext, flags: AttachFlags): Promise<number> {
  try {
    const { server, leave, close } = await attach(context, flags);
    try {
      const [{ ndJsonStream }, { createAgent }] = await Promise.all([
        import('@agentclientprotocol/sdk'),
        import('#acp/acp-agent.ts'),
      ]);
      const agent = createAgent({
        client: createMetisClient(server),
        version: context.version,
        uuid: randomUUID,
        clock: systemClock,
        failed: (error) =>
          context.stderr.write(`metis: ${toPrintable(error instanceof Error ? error.message : String(error))}\n`),
      });
      const output = new WritableStream<Uint8Array>({
        write: (chunk) => void context.stdout.write(Buffer.from(chunk).toString('utf8')),
      });
      const input = Readable.toWeb(context.stdin) as ReadableStream<Uint8Array>;
      const connection = agent.app.connect(ndJsonStream(output, input, { maxMessageBytes: MAX_FRAME_BYTES }));
      await Promise.race([connection.closed, context.outputClosed, context.stopSignal()]);
      leave();
      await agent.close();
      connection.close();
    } finally {
      await close();
    }
    return 0;
  } catch (error) {
    if (error instanceof StartupError) return refuse(context, error.problems);
    throw error;
  }
}
