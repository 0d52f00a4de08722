// Finds the checks of a workspace: those of the server, and those of a file whose bytes a person has trusted (20 §10, §11).
import {
  CHECKS_FILE,
  describeChecks,
  type FoundChecks,
  pickCheck,
  readChecksFile,
} from '#core/policy/delegation/checks.ts';
import type { StoredCheck } from '#protocol/check.ts';
import type { Result } from '#protocol/result.ts';
import type { Runtime, Storage, Toolbox } from '../state/engine.ts';
import { findTrustFault } from './trusted-files.ts';

type ChecksEngine = Pick<Runtime, 'config'> & Pick<Storage, 'store'> & Pick<Toolbox, 'library'>;

/** The check of this name as it is now; the error lists what there is instead. */
export async function findCheck(
  engine: ChecksEngine,
  root: string,
  name: string,
): Promise<Result<StoredCheck, string>> {
  return pickCheck(name, await readChecks(engine, root));
}

async function readChecks(engine: ChecksEngine, root: string): Promise<FoundChecks> {
  const server = engine.config.checks;
  const ignoreFile = (fault: string | null): FoundChecks => ({ server, workspace: {}, fault });
  const file = await engine.library.readText(root, CHECKS_FILE);
  if (!file.ok) return ignoreFile(null);
  const distrust = await findTrustFault(engine, root, { path: CHECKS_FILE, sha256: file.value.sha256 });
  if (distrust !== null) return ignoreFile(distrust);
  const checks = readChecksFile(file.value.text);
  if (!checks.ok) return ignoreFile(`${CHECKS_FILE} is not valid: ${checks.error}`);
  return { server, workspace: checks.value, fault: null };
}

/** What the workspace's file asks for, trusted or not; empty without a file. */
export async function listCheckWidenings(
  { library }: Pick<Toolbox, 'library'>,
  root: string,
): Promise<readonly string[]> {
  const file = await library.readText(root, CHECKS_FILE);
  if (!file.ok) return [];
  const checks = readChecksFile(file.value.text);
  if (!checks.ok) return [`is not valid: ${checks.error}`];
  return describeChecks(checks.value);
}
