// Every route of the server, in one place.
import type { HttpApp } from './app.ts';
import type { RouteDeps } from './deps.ts';
import { analyticsRoutes } from './routes/analytics.ts';
import { confirmationRoutes } from './routes/confirmations.ts';
import { historyRoutes } from './routes/history.ts';
import { maintenanceRoutes } from './routes/maintenance.ts';
import { metaRoutes } from './routes/meta.ts';
import { modelRoutes } from './routes/models.ts';
import { pricingRoutes } from './routes/pricing.ts';
import { routingRoutes } from './routes/routing.ts';
import { sessionRoutes } from './routes/sessions.ts';
import { streamRoutes } from './routes/stream.ts';
import { turnRoutes } from './routes/turns.ts';

export function registerRoutes(app: HttpApp, deps: RouteDeps): void {
  metaRoutes(app, deps);
  sessionRoutes(app, deps);
  turnRoutes(app, deps);
  confirmationRoutes(app, deps);
  historyRoutes(app, deps);
  streamRoutes(app, deps);
  modelRoutes(app, deps);
  routingRoutes(app, deps);
  pricingRoutes(app, deps);
  analyticsRoutes(app, deps);
  maintenanceRoutes(app, deps);
}
