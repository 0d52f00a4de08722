// SQLite held against what every store must do.
import path from 'node:path';
import { newDatabase } from '../../support/new-database.ts';
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
import { openWorld, tempFolder } from './world.ts';

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
for (const suite of suites)
  suite(async () => {
    const file = path.join(tempFolder(), 'metis.db');
    newDatabase(file);
    return openWorld(file);
  });
