// The shape of a turn as its row holds it: without what a missing field stands for, and what its session knows (12 §12.2).
import { type Fingerprint, FingerprintSchema } from '#protocol/learning/pattern.ts';
import { defaultsOf, sparse, whole } from '../journal/sparse.ts';

const DEFAULTS = defaultsOf(FingerprintSchema);

/** What has to be stored of a shape. */
export function storedFingerprint({ workspace_hash: _, ...shape }: Fingerprint): Record<string, unknown> {
  return sparse(DEFAULTS, shape);
}

/**
 * The shape again; one that was stored whole stays as it is.
 * @param workspaceHash of its session
 */
export function wholeFingerprint(stored: Readonly<Record<string, unknown>>, workspaceHash: string): Fingerprint {
  return whole(DEFAULTS, { workspace_hash: workspaceHash, ...stored }) as Fingerprint;
}
