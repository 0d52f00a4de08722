// The reports over the database of a cluster (16 §9).
import { afterAll, describe } from 'vitest';
import { postgresService } from '../support/services.ts';
import { type PostgresDatabase, startDatabase } from './postgres.ts';
import { analyticsSuite } from './suite/suite.ts';

const { url, missing } = await postgresService();

// Promise 16.18: the reports promise the same on both databases.
describe.skipIf(url === null)(`on PostgreSQL${missing && `, skipped: ${missing}`}`, () => {
  // One node and one schema for all of them, emptied each time: to make them takes longer than most tests.
  let started: Promise<PostgresDatabase> | null = null;
  afterAll(async () => (await started)?.close());
  analyticsSuite(async () => {
    started ??= startDatabase(url!);
    return (await started).emptyWorld();
    // Each asks some hundred questions of it.
  }, 2);
});
