// PostgreSQL held against what every store must do.
import { afterAll, describe } from 'vitest';
import { postgresService } from '../../support/services.ts';
import { caseSuite } from '../suite/cases.ts';
import { conditionSuite } from '../suite/conditions.ts';
import { delegationSuite } from '../suite/delegations.ts';
import { eventSuite } from '../suite/events.ts';
import { forecastSuite } from '../suite/forecasts.ts';
import { forkSuite } from '../suite/forks.ts';
import { journalSuite } from '../suite/journal.ts';
import { ledgerSuite } from '../suite/ledger.ts';
import { messageSuite } from '../suite/messages.ts';
import { retentionSuite } from '../suite/retention.ts';
import { rollbackSuite } from '../suite/rolled-back.ts';
import { sessionSuite } from '../suite/sessions.ts';
import { sharedSuite } from '../suite/shared.ts';
import { trustedFileSuite } from '../suite/trusted-files.ts';
import { dropSchemas, openWorld } from './world.ts';

const { url, missing } = await postgresService();
const suites = [
  caseSuite,
  conditionSuite,
  delegationSuite,
  eventSuite,
  forecastSuite,
  forkSuite,
  journalSuite,
  ledgerSuite,
  messageSuite,
  retentionSuite,
  rollbackSuite,
  sessionSuite,
  sharedSuite,
  trustedFileSuite,
];
// Promise 16.18: the store promises the same on both databases.
describe.skipIf(url === null)(`the store on PostgreSQL${missing && `, skipped: ${missing}`}`, () => {
  afterAll(dropSchemas);
  for (const suite of suites) suite(() => openWorld(url!));
});
