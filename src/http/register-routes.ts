// Every route of the server, in one place.

import type { RouteOptions } from 'fastify';
import { z } from 'zod';
import { gatewayRoutes } from './gateway/gateway-routes.ts';
import type { HttpApp, RouteDeps } from './http-app.ts';
import { analyticsRoutes } from './routes/analytics-routes.ts';
import { confirmationRoutes } from './routes/confirmation-routes.ts';
import { delegationRoutes } from './routes/delegation-routes.ts';
import { caseRoutes, historyRoutes, streamRoutes } from './routes/history-routes.ts';
import { maintenanceRoutes, metaRoutes, nodeRoutes, settingsRoutes } from './routes/meta-routes.ts';
import { modelRoutes, patternRoutes, pricingRoutes, routingRoutes } from './routes/model-routes.ts';
import { dashboardRoutes, mcpRoutes } from './routes/mounted-routes.ts';
import { peopleRoutes } from './routes/people-routes.ts';
import { forkRoutes, sessionRoutes } from './routes/session-routes.ts';
import { turnRoutes } from './routes/turn-routes.ts';
import { toolRoutes, trustRoutes, workerRoutes } from './routes/workspace-routes.ts';

const NO_PARAMETERS = z.strictObject({});

export function registerRoutes(app: HttpApp, deps: RouteDeps): void {
  app.addHook('onRoute', refuseParameters);
  metaRoutes(app, deps);
  nodeRoutes(app, deps);
  settingsRoutes(app, deps);
  sessionRoutes(app, deps);
  forkRoutes(app, deps);
  turnRoutes(app, deps);
  delegationRoutes(app, deps);
  confirmationRoutes(app, deps);
  historyRoutes(app, deps);
  caseRoutes(app, deps);
  streamRoutes(app, deps);
  modelRoutes(app, deps);
  routingRoutes(app, deps);
  patternRoutes(app, deps);
  pricingRoutes(app, deps);
  workerRoutes(app, deps);
  toolRoutes(app, deps);
  trustRoutes(app, deps);
  analyticsRoutes(app, deps);
  maintenanceRoutes(app, deps);
  peopleRoutes(app, deps);
  mcpRoutes(app, deps);
  gatewayRoutes(app, deps);
  dashboardRoutes(app, deps);
}

/**
 * An operation that names no query parameter takes none (05 §1.6). Open paths and clients' wires take what others add to
 * them; an upgrade reads its own.
 */
function refuseParameters({ schema, config }: RouteOptions): void {
  if (schema?.operationId === undefined || schema.querystring !== undefined) return;
  if (config?.open !== undefined || config?.gateway !== undefined || config?.upgrade === true) return;
  schema.querystring = NO_PARAMETERS;
}
