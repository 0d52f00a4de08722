// The other nodes: reachability, timeouts, and the choice of a node for a tree without an owner (16 §5.3, §5.4, §5.8).

import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Dispatcher } from 'undici';
import { z } from 'zod';
import type { Logger } from '#core/ports/logger.ts';
import type { NodeInfo, Trees } from '#core/ports/tree-ownership.ts';
import type { Clock, Timer } from '#protocol/clock.ts';
import type { SessionId } from '#protocol/ids.ts';

export interface Reach {
  /** False for a node whose address did not lead to it twice in a row. */
  canReach(node: Pick<NodeInfo, 'id'>): boolean;
  /** Number of nodes that cannot be reached. */
  unreachable(): number;
  /** From now on the other nodes are asked. */
  start(): void;
  close(): Promise<void>;
}

interface Probe {
  /** Null = the node answered, or goes down; else why it cannot be reached. Never rejects. @param version of the asking node */
  ask(node: Pick<NodeInfo, 'id' | 'url' | 'version'>, version: string): Promise<string | null>;
  close(): Promise<void>;
}

/** Where a node answers with its id. */
export const SELF_PATH = '/nodes/self';

const ANSWER_MS = 2000;
const MAX_ANSWER_BYTES = 4096;
/** One answer may be lost by chance. */
const FAILURES = 2;
/** A node that goes down, or has much to do. */
const NO_VERDICT: readonly number[] = [429, 503];

const SelfReply = z.object({ id: z.string() });

/** Straight to the node, past any proxy of the environment, as forwarded requests go. */
export function createProbe(): Probe {
  let agent: Promise<Dispatcher> | null = null;
  const open = async () => {
    const { Agent } = await import('undici');
    return new Agent({
      headersTimeout: ANSWER_MS,
      bodyTimeout: ANSWER_MS,
      connect: { timeout: ANSWER_MS },
      maxResponseSize: MAX_ANSWER_BYTES,
    });
  };
  return {
    async ask(node, version) {
      try {
        agent ??= open();
        const { statusCode, body } = await (await agent).request({ origin: node.url, path: SELF_PATH, method: 'GET' });
        const text = await body.text();
        // A node of another version may answer otherwise.
        if (NO_VERDICT.includes(statusCode) || node.version !== version) return null;
        if (statusCode === 200 && parseId(text) === node.id) return null;
        return 'another server answers there';
      } catch (error) {
        return String((error as NodeJS.ErrnoException).code ?? error);
      }
    },
    async close() {
      await (await agent)?.destroy();
    },
  };
}

function parseId(text: string): string | null {
  try {
    return SelfReply.parse(JSON.parse(text)).id;
  } catch {
    return null;
  }
}

/** @param everyMs between two rounds of questions */
export function createReach(
  trees: Trees,
  around: { readonly clock: Clock; readonly log: Logger },
  everyMs: number,
): Reach {
  const { clock, log } = around;
  const probe = createProbe();
  let failures = new Map<string, number>();
  let timer: Timer | null = null;
  let closed = false;

  async function ask(node: NodeInfo, version: string): Promise<readonly [id: string, failures: number]> {
    const before = failures.get(node.id) ?? 0;
    const reason = await probe.ask(node, version);
    const now = reason === null ? 0 : before + 1;
    const about = { node: node.name, url: node.url };
    if (now === FAILURES && !closed) {
      log.warn(
        { ...about, reason },
        'a node cannot be reached at its address and gets no work from here; check its cluster.advertise_url and the network',
      );
    }
    if (now === 0 && before >= FAILURES) log.info(about, 'a node is reached again');
    return [node.id, now];
  }

  async function askAll(): Promise<void> {
    const nodes = await trees.nodes();
    const self = nodes.find(({ id }) => id === trees.node);
    // Before it is registered it has nothing to give away.
    if (self === undefined) return;
    const others = nodes.filter((node) => node !== self && !node.draining);
    failures = new Map(await Promise.all(others.map((node) => ask(node, self.version))));
  }

  function plan(): void {
    timer = clock.after(everyMs, () => {
      // The heartbeat reports a database that does not answer.
      void askAll()
        .catch(() => {})
        .finally(() => {
          if (!closed) plan();
        });
    });
  }

  return {
    canReach: ({ id }) => (failures.get(id) ?? 0) < FAILURES,
    unreachable: () => [...failures.values()].filter((count) => count >= FAILURES).length,
    start: plan,
    async close() {
      closed = true;
      timer?.cancel();
      await probe.close();
    },
  };
}

/** For a server that has no other nodes. */
export const NO_NODES: Reach = { canReach: () => true, unreachable: () => 0, start: () => {}, close: async () => {} };

/** Timeouts of requests to the owner of a tree. */
export interface Patience {
  /** A request for an owner that cannot be reached is retried for this long. */
  readonly total_ms: number;
  readonly between_ms: number;
  /** An owner that accepted a request and then sends no byte for this long counts as gone. */
  readonly silence_ms: number;
  /** An owner that sends only interim answers for this long counts as gone, too. */
  readonly answer_ms: number;
  /** The interval of interim answers from a node that accepted a request. */
  readonly alive_ms: number;
  /** The same for a read, which this node can answer as well. */
  readonly read_ms: number;
  /** So often each other node is asked whether its address leads to it. */
  readonly probe_ms: number;
}

export const PATIENCE: Patience = {
  total_ms: 20_000,
  between_ms: 250,
  silence_ms: 5000,
  // Above the longest that a request asks to wait, and its wait for room before.
  answer_ms: 660_000,
  alive_ms: 1500,
  read_ms: 2000,
  probe_ms: 3000,
};

export interface Owners {
  /**
   * Forwards a read to the owner, whose answer is more current. Returns true when the owner answered.
   * Throws `misdirected_request` where another node thought that this one owns the tree.
   */
  answerRead(request: FastifyRequest, reply: FastifyReply, root: SessionId): Promise<boolean>;
  /**
   * Forwards a request whose tree was found in its body. Returns true when another node answered.
   * Throws `node_unavailable`, `misdirected_request`.
   */
  answerElsewhere(request: FastifyRequest, reply: FastifyReply, root: SessionId): Promise<boolean>;
  /**
   * Forwards a request of a connection that `node` keeps in memory. Returns true when `node` is another node and answered.
   * Throws `node_unavailable`.
   */
  answerAt(request: FastifyRequest, reply: FastifyReply, node: string): Promise<boolean>;
  /**
   * Ends another session than that of the request, as its caller, on the node that holds it; an unknown or an ended one is
   * left alone. Null on a single server. Throws `node_unavailable`.
   */
  readonly endSession: ((request: FastifyRequest, session: SessionId) => Promise<void>) | null;
}

/**
 * The node with the tree's place that runs the fewest turns, this one first among equals; null when none is active.
 * @param self id of this node
 */
export function chooseNode(place: string, nodes: readonly NodeInfo[], self: string): NodeInfo | null {
  const able = nodes.filter((node) => !node.draining && node.places.includes(place));
  const rank = (node: NodeInfo) => node.turns + (node.id === self ? 0 : 0.5);
  return able.reduce<NodeInfo | null>((best, node) => (best === null || rank(node) < rank(best) ? node : best), null);
}
