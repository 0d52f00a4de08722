// The fingerprint of a definition: what a worker runs with, whoever wrote it down (13 §2).

import { canonicalJson, sha256Hex } from '#protocol/text/canonical-json.ts';
import type { WorkerDefinition } from '#protocol/worker/definition.ts';

/** @param instructions as they are used, from the definition or its prompt file */
export function definitionDigest(definition: WorkerDefinition, instructions: string): string {
  const { locked: _, ...rest } = definition;
  return sha256Hex(canonicalJson({ ...rest, instructions }));
}
