// What the routes know of other nodes: who answers, and how long one is waited for (16 §5.3).
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { SessionId } from '#protocol/ids.ts';

/** How long an owner is waited for. */
export interface Patience {
  /** An owner that cannot be reached is tried for so long. */
  readonly total_ms: number;
  readonly between_ms: number;
  /** One that took a request and says nothing counts as gone. */
  readonly silence_ms: number;
  /** So does one that says for so long that it lives, and does not answer. */
  readonly answer_ms: number;
  /** So often a node that took one says that it lives. */
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
   * Of a read that the owner answers better: true when it did.
   * Throws `misdirected_request` where another node thought that this one owns the tree.
   */
  answerRead(request: FastifyRequest, reply: FastifyReply, root: SessionId): Promise<boolean>;
  /**
   * Of a request that turned out to belong to this tree when its body had been read: true when another node answered it.
   * Throws `node_unavailable`, `misdirected_request`.
   */
  answerElsewhere(request: FastifyRequest, reply: FastifyReply, root: SessionId): Promise<boolean>;
  /**
   * Of a connection that lives in the memory of this node: true when it is another one, and that answered.
   * Throws `node_unavailable`.
   */
  answerAt(request: FastifyRequest, reply: FastifyReply, node: string): Promise<boolean>;
}
