// Writes the default model of a workspace into its routing file (03 §6.5).
import type { RoutingDefault, SetDefaultModelBody } from '#protocol/api/model-bodies.ts';
import { validationError } from '#protocol/errors.ts';
import { sha256Hex } from '#protocol/text/canonical-json.ts';
import { parsePolicyFile, policyWarnings } from '../policy/routing/policy-file.ts';
import { resolveModel, resolveWorkspace } from './session/session-records.ts';
import type { Engine } from './state/engine.ts';

const FILE = '.metis/routing.yaml';

/**
 * With `dry_run` the text that the file would have, else that which it has now. Throws `not_found` (workspace),
 * `workspace_not_allowed`, `unknown_alias`, `model_not_configured`, and `validation_error` where the file differs from
 * the one that `previous_sha256` names, is not valid, or cannot be written.
 */
export async function setDefaultModel(engine: Engine, body: SetDefaultModelBody): Promise<RoutingDefault> {
  const root = await resolveWorkspace(engine, body.workspace_path);
  const model = resolveModel(engine, body.model);
  let change: RoutingDefault | null = null;
  const done = await engine.workspaces.changeRoutingFile(root, async (bytes) => {
    change = await planChange(engine, bytes, model);
    requireSame(change, body);
    if (body.dry_run || change.text === change.previous_text) return null;
    change = { ...change, written: true };
    return change.text;
  });
  if (!done.ok) throw fileError(done.error);
  if (change === null) throw new Error('the change of a routing file was not planned');
  return change;
}

async function planChange(engine: Engine, bytes: Buffer | null, model: string): Promise<RoutingDefault> {
  const before = decodeText(bytes);
  const parsed = parsePolicyFile(before ?? '', 'workspace', engine.registry);
  if (!parsed.ok) throw fileError(`is not valid, correct it first: ${parsed.error[0]}`);
  // 72 files, needed only where a routing file is written.
  const { reviseDefault } = await import('../policy/routing/revise-default.ts');
  const revised = reviseDefault(before ?? '', model);
  if (!revised.ok) throw fileError(`${revised.error}; write "default: ${model}" into it`);
  const text = revised.value;
  return {
    path: FILE,
    model,
    previous_model: parsed.value.default_model,
    previous_sha256: bytes === null ? null : sha256Hex(bytes),
    previous_text: before,
    sha256: sha256Hex(text),
    text,
    written: false,
    warnings: [...policyWarnings({ ...parsed.value, default_model: model }, 'workspace', engine.registry)],
  };
}

/** What is written is what was shown. */
function requireSame(
  { previous_sha256: found }: RoutingDefault,
  { dry_run, previous_sha256: shown }: SetDefaultModelBody,
): void {
  if (dry_run || shown === found) return;
  const now = found === null ? `${FILE} does not exist` : `that of ${FILE} is ${found}`;
  const message = `is not that of the file: ${now}; ask again with dry_run`;
  throw validationError([{ path: 'previous_sha256', message }]);
}

function decodeText(bytes: Buffer | null): string | null {
  if (bytes === null) return null;
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw fileError('is not valid UTF-8 text');
  }
}

function fileError(message: string) {
  return validationError([{ path: 'workspace_path', message: `${FILE} ${message}` }]);
}
