// All appliers together: what a batch's writes do to the database (01 §11.4).
import type { Write } from '#core/ports/journal-writer.ts';
import { delegationWrites } from './delegations.ts';
import { otherWrites } from './others.ts';
import { patternWrites } from './patterns.ts';
import { sessionWrites } from './sessions.ts';
import type { Appliers, Step } from './transaction.ts';
import { turnWrites } from './turns.ts';

const APPLIERS: Appliers = {
  ...sessionWrites,
  ...turnWrites,
  ...delegationWrites,
  ...patternWrites,
  ...otherWrites,
};

export function applyWrite(write: Write, step: Step): void {
  (APPLIERS[write.kind] as (write: Write, step: Step) => void)(write, step);
}
