// What a node that joins says of those that are there (16 §10).

import type { Logger } from '#core/ports/logger.ts';
import type { NodeInfo } from '#core/ports/tree-ownership.ts';
import type { Send } from '#store/postgres/connection/client.ts';
import { type NodeSelf, readNodes } from './nodes.ts';

const NOT_ALIKE =
  'configuration, registry or prices of this node differ from those of other nodes; make them alike (config_matches in GET /nodes)';
const NOT_REACHED =
  'other nodes give out the address of this one, so that neither is reached by the other; give each a cluster.advertise_url, or bind it to more than the loopback address';

/** Warns of nodes that are configured otherwise, and of those that give out the address of this one. */
export async function warnOfOthers(send: Send, self: NodeSelf, log: Logger): Promise<void> {
  const others = (await readNodes(send, self.configHash)).filter(({ name }) => name !== self.name);
  const warnAbout = (nodes: readonly NodeInfo[], text: string) => {
    if (nodes.length > 0) log.warn({ nodes: nodes.map(({ name }) => name) }, text);
  };
  warnAbout(
    others.filter((each) => !each.config_matches),
    NOT_ALIKE,
  );
  warnAbout(
    others.filter(({ url }) => url === self.url),
    NOT_REACHED,
  );
}
