// `/nodes`: the nodes that share this database (16 §5.7).
import { NodeListReply, NodeReply } from '#protocol/api/server.ts';
import type { HttpApp } from '../app.ts';
import type { RouteDeps } from '../deps.ts';
import { SELF_PATH } from '../forward/reach.ts';
import { operation } from '../operation.ts';

export function nodeRoutes(app: HttpApp, { engine: { trees }, reach }: RouteDeps): void {
  app.get(
    '/nodes',
    {
      schema: operation({
        id: 'listNodes',
        tag: 'meta',
        summary: 'List active nodes by name; an embedded server is the only one.',
        results: { 200: NodeListReply },
        errors: [],
      }),
    },
    async (_request, reply) => {
      const nodes = await trees.nodes();
      return reply.send(nodes.map((node) => ({ ...node, reachable: node.id === trees.node || reach.canReach(node) })));
    },
  );

  app.get(
    SELF_PATH,
    {
      config: { open: 'everywhere', unlimited: true },
      schema: operation({
        id: 'getNode',
        tag: 'meta',
        summary: 'Get the id of the node that answers. Nodes ask each other for it.',
        open: 'everywhere',
        results: { 200: NodeReply },
        errors: [],
      }),
    },
    async (_request, reply) => reply.send({ id: trees.node }),
  );
}
