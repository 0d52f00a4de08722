// Earlier names of configuration keys, which are still read.

/** The present name by the earlier one. */
export const RENAMED_KEYS: ReadonlyMap<string, string> = new Map([
  ['delegation.allow_dearer_fallback', 'delegation.allow_costlier_fallback'],
  ['pattern.enabled', 'pattern.mode'],
]);

/** The present value of a key that was a boolean under its earlier name. */
export function renameValue(oldKey: string, value: unknown): unknown {
  if (oldKey !== 'pattern.enabled') return value;
  if (value === false || value === 'false') return 'off';
  if (value === true || value === 'true') return 'suggest';
  return value;
}
