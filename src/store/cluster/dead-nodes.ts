// Ends the lease of a node that is certainly dead: its session at PostgreSQL is closed, and its address refuses connections (16 §4.8).
import net from 'node:net';
import type { Logger } from '#core/ports/logger.ts';
import type { Send } from '../postgres/connection/client.ts';

/** Held by each node on the connection of its heartbeats, so PostgreSQL frees it when that connection closes. */
const lockName = (id: string) => `hashtext(current_schema() || ' node ' || ${id})`;

/** Taken again with each heartbeat: the connection may be another one. */
export const TAKE_NODE_LOCK = `pg_try_advisory_lock(${lockName('id')})`;
/** Shared, so that nodes that look at the same moment do not see each other. */
const isFree = (id: string) => `pg_try_advisory_xact_lock_shared(${lockName(id)})`;
/** The other active nodes, as `Peer`s. */
export const PEERS = `(SELECT coalesce(json_agg(json_build_object('id', n.id, 'url', n.url, 'connected', NOT ${isFree('n.id')})), '[]')
  FROM nodes n WHERE n.id <> @node AND n.lease_until > now())`;
const END_LEASE = `UPDATE nodes SET lease_until = now() WHERE id = @id AND lease_until > now() AND ${isFree('id')}`;

export interface Peer {
  readonly id: string;
  readonly url: string;
  /** Whether its heartbeats have a connection to PostgreSQL at this moment. */
  readonly connected: boolean;
}

/** What this node has seen of another one. */
interface Sighting {
  /** It was connected: nodes of older versions take no lock. */
  connected: boolean;
  /** A connection to its address was accepted from here: one that never leads anywhere proves nothing. */
  reached: boolean;
  asking: boolean;
}

export interface DeathWatch {
  /**
   * Takes what a look at the database found. The addresses are asked in the background.
   * @param onDeath called with the id of a node whose lease was ended: its trees may be claimed
   */
  observe(peers: readonly Peer[], onDeath: (id: string) => void): void;
}

export function createDeathWatch(send: Send, log: Logger): DeathWatch {
  const known = new Map<string, Sighting>();

  async function ask({ id, url, connected }: Peer, sighting: Sighting): Promise<boolean> {
    const answer = await tryAddress(url);
    if (answer === 'accepted') sighting.reached = true;
    if (connected || answer !== 'refused') return false;
    if ((await send(END_LEASE, { id })).changes === 0) return false;
    log.warn(
      { node: id, url },
      'a node is dead: it has no session at the database and its address refuses; its lease is ended',
    );
    return true;
  }

  return {
    observe(peers, onDeath) {
      for (const id of known.keys()) if (!peers.some((peer) => peer.id === id)) known.delete(id);
      for (const peer of peers) {
        const sighting = known.get(peer.id) ?? { connected: false, reached: false, asking: false };
        known.set(peer.id, sighting);
        if (peer.connected) sighting.connected = true;
        const { connected, reached, asking } = sighting;
        // A living node is asked until it was reached once, a missing one each time.
        if (asking || !connected || peer.connected === reached) continue;
        sighting.asking = true;
        ask(peer, sighting)
          .then((died) => died && onDeath(peer.id))
          .catch((err: unknown) => log.warn({ err, node: peer.id }, 'whether a node is dead could not be found out'))
          .finally(() => {
            sighting.asking = false;
          });
      }
    },
  };
}

const ANSWER_MS = 1000;

/** Whether the host at the address accepts a connection, or refuses it: then no process listens there. */
function tryAddress(url: string): Promise<'accepted' | 'refused' | 'silent'> {
  const { hostname, port, protocol } = new URL(url);
  const host = hostname.replace(/^\[|\]$/g, '');
  return new Promise((resolve) => {
    const socket = net.connect({ host, port: Number(port) || (protocol === 'https:' ? 443 : 80), timeout: ANSWER_MS });
    const settle = (answer: 'accepted' | 'refused' | 'silent') => {
      socket.destroy();
      resolve(answer);
    };
    socket.once('connect', () => settle('accepted'));
    socket.once('timeout', () => settle('silent'));
    socket.once('error', (error) => settle(isConnectionRefused(error) ? 'refused' : 'silent'));
  });
}

/** A name may have several addresses: all of them refuse. */
function isConnectionRefused(error: NodeJS.ErrnoException): boolean {
  if (error instanceof AggregateError) return error.errors.every(isConnectionRefused);
  return error.code === 'ECONNREFUSED';
}
