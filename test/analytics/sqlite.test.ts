// The reports over the embedded database.
import { analyticsSuite } from './suite/suite.ts';
import { openWorld } from './world.ts';

analyticsSuite(async () => openWorld(), 15);
