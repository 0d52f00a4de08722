// A client that asks whichever node is up, until there is an answer that is one.
import { pause } from '../support/planned-work.ts';

/** What a node says while another one has to answer, or the same a little later. */
const RETRIED: readonly unknown[] = [
  'node_unavailable',
  'service_shutting_down',
  'storage_unavailable',
  'idempotency_in_progress',
  'server_busy',
];
const LONGEST_ANSWER_MS = 30_000;
const AGAIN_MS = 200;

type Json = ReturnType<typeof JSON.parse>;
class Refused extends Error {}

/**
 * Posts with an Idempotency-Key, so that nothing is done twice. Throws what no retry mends.
 * @param nodeUrl of a node that is up, another one each time
 */
export function insisting(nodeUrl: () => string) {
  return async (target: string, key: string, body: object): Promise<Json> => {
    for (;;) {
      try {
        const answer = await fetch(`${nodeUrl()}${target}`, {
          method: 'POST',
          signal: AbortSignal.timeout(LONGEST_ANSWER_MS),
          headers: { 'content-type': 'application/json', 'idempotency-key': key },
          body: JSON.stringify(body),
        });
        const parsed: Json = await answer.json();
        if (answer.ok) return parsed;
        if (!RETRIED.includes(parsed.error?.code)) throw new Refused(`POST ${target}: ${JSON.stringify(parsed)}`);
      } catch (error) {
        if (error instanceof Refused) throw error;
      }
      await pause(AGAIN_MS);
    }
  };
}
