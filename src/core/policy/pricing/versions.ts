// Versions of a price table: names, content hashes, and what a start must warn about (08 §2, §3).
import { canonicalJson, sha256Hex } from '#protocol/text/canonical-json.ts';
import type { ResolvedEntry } from './price-entry.ts';

const STALE_DAYS = 90;
const DAY_MS = 86_400_000;

/** Opaque to every reader: compared and joined on, never parsed. */
export function overlayVersion(base: string, overlay: string): string {
  return `${base}+${overlay}`;
}

/** SHA-256 of the canonical JSON of the resolved entries. */
export function contentHash(models: Readonly<Record<string, ResolvedEntry>>): string {
  return sha256Hex(canonicalJson(models));
}

/**
 * The startup warning for rates older than 90 days, or null.
 * @param now Unix milliseconds
 */
export function staleRates(importedOn: string | null, now: number): string | null {
  if (importedOn === null) return null;
  const days = Math.floor((now - Date.parse(importedOn)) / DAY_MS);
  return days > STALE_DAYS ? `the price table's rates are ${days} days old (imported on ${importedOn})` : null;
}
