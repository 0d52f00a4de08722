// Every route of the server, in one place.
import type { HttpApp } from './app.ts';
import type { RouteDeps } from './deps.ts';
import { gatewayRoutes } from './gateway/routes.ts';
import { analyticsRoutes } from './routes/analytics.ts';
import { confirmationRoutes } from './routes/confirmations.ts';
import { dashboardRoutes } from './routes/dashboard.ts';
import { delegationRoutes } from './routes/delegations.ts';
import { historyRoutes } from './routes/history.ts';
import { maintenanceRoutes } from './routes/maintenance.ts';
import { mcpRoutes } from './routes/mcp.ts';
import { metaRoutes } from './routes/meta.ts';
import { modelRoutes } from './routes/models.ts';
import { nodeRoutes } from './routes/nodes.ts';
import { patternRoutes } from './routes/patterns.ts';
import { pricingRoutes } from './routes/pricing.ts';
import { routingRoutes } from './routes/routing.ts';
import { sessionRoutes } from './routes/sessions.ts';
import { streamRoutes } from './routes/stream.ts';
import { toolRoutes } from './routes/tools.ts';
import { trustRoutes } from './routes/trust.ts';
import { turnRoutes } from './routes/turns.ts';
import { workerRoutes } from './routes/workers.ts';

export function registerRoutes(app: HttpApp, deps: RouteDeps): void {
  metaRoutes(app, deps);
  nodeRoutes(app, deps);
  sessionRoutes(app, deps);
  turnRoutes(app, deps);
  delegationRoutes(app, deps);
  confirmationRoutes(app, deps);
  historyRoutes(app, deps);
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
  mcpRoutes(app, deps);
  gatewayRoutes(app, deps);
  dashboardRoutes(app, deps);
}
