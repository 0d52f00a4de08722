// The registered paths and their methods: what 405, preflights and the body gate need to know.
import type { RouteOptions } from 'fastify';
import type { z } from 'zod';
import type { HttpApp } from './app.ts';

export interface RouteTable {
  /** Every method that some path takes, but HEAD, which no page has to ask for. */
  methods(): readonly string[];
  /** Methods that the path of this request target takes; none when there is no such path. */
  allowed(target: string): readonly string[];
  /** Whether an empty object is not enough as the body of this route. */
  bodyRequired(method: string, pattern: string): boolean;
}

interface PathEntry {
  readonly match: RegExp;
  readonly methods: Set<string>;
}

/** Follows the registration of routes. Call it before the first one. */
export function trackRoutes(app: HttpApp): RouteTable {
  const paths = new Map<string, PathEntry>();
  const needBody = new Set<string>();

  app.addHook('onRoute', ({ method, url, schema }: RouteOptions) => {
    const path = paths.get(url) ?? { match: patternOf(url), methods: new Set<string>() };
    paths.set(url, path);
    for (const one of [method].flat()) {
      path.methods.add(one);
      const body = schema?.body as z.ZodType | undefined;
      if (body !== undefined && !body.safeParse({}).success) needBody.add(`${one} ${url}`);
    }
  });

  return {
    methods: () =>
      [...new Set([...paths.values()].flatMap(({ methods }) => [...methods]))].filter((m) => m !== 'HEAD').sort(),
    allowed(target) {
      const path = target.split('?', 1)[0] ?? '';
      const entry = [...paths.values()].find(({ match }) => match.test(path));
      return entry === undefined ? [] : [...entry.methods].sort();
    },
    bodyRequired: (method, pattern) => needBody.has(`${method} ${pattern}`),
  };
}

/** `/sessions/:session_id` as a pattern of whole paths. */
function patternOf(url: string): RegExp {
  const escaped = url.replace(/[.*+?^${}()|[\]\\]/g, '\\$&').replace(/:[A-Za-z_]+/g, '[^/]+');
  return new RegExp(`^${escaped}$`);
}
