// The dashboard's page and assets: without a token, since what they show is asked for with one (17 §3, 05 §3.7).
import type { HttpApp } from '../app.ts';
import type { RouteDeps } from '../deps.ts';

/** Approvals are given on this page: nothing foreign runs on it, and no other page holds it in a frame. */
const HEADERS = {
  'content-security-policy': "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
};
const FOR_EVER = 'public, max-age=31536000, immutable';

export function dashboardRoutes(app: HttpApp, { dashboard }: RouteDeps): void {
  for (const { path, mediaType, body, etag } of dashboard ?? []) {
    app.get(
      path,
      { config: { open: 'everywhere', unlimited: true }, schema: { hide: true } },
      async (request, reply) => {
        reply.headers(HEADERS).header('etag', etag);
        reply.header('cache-control', path === '/' ? 'no-cache' : FOR_EVER);
        if (knows(request.headers['if-none-match'], etag)) return reply.status(304).send();
        return reply.type(mediaType).send(body);
      },
    );
  }
}

function knows(header: string | undefined, etag: string): boolean {
  const known = header?.split(',').map((one) => one.trim().replace(/^W\//, '')) ?? [];
  return known.includes(etag) || known.includes('*');
}
