// Everything the reports promise, on whichever database (07, 16 §12).
import type { OpenWorld } from '../world.ts';
import { billsSuite } from './bills.ts';
import { exactnessSuite } from './exactness.ts';
import { groupingsSuite } from './groupings.ts';
import { reportsSuite } from './reports.ts';
import { whatIfSuite } from './what-if.ts';
import { workedExampleSuite } from './worked-example.ts';

/** @param randomWorlds for which each grouping is held against plain sums */
export function analyticsSuite(openWorld: OpenWorld, randomWorlds: number): void {
  billsSuite(openWorld);
  exactnessSuite(openWorld);
  groupingsSuite(openWorld, randomWorlds);
  reportsSuite(openWorld);
  whatIfSuite(openWorld);
  workedExampleSuite(openWorld);
}
