// `/nodes`: who works on this database (16 §5.7).
import { NodeListReply } from '../../domain/api/server.ts';
import type { HttpApp } from '../app.ts';
import type { RouteDeps } from '../deps.ts';
import { operation } from '../operation.ts';

export function nodeRoutes(app: HttpApp, { engine }: RouteDeps): void {
  app.get(
    '/nodes',
    {
      schema: operation({
        id: 'listNodes',
        tag: 'meta',
        summary: 'The nodes that live, by name; embedded the one.',
        results: { 200: NodeListReply },
        errors: [],
      }),
    },
    async (_request, reply) => reply.send(await engine.trees.nodes()),
  );
}
