// When a failed attempt is tried again and how long to wait before it (11.8).
import { TRANSIENT_ERRORS } from '#core/ports/provider.ts';
import type { Fault } from '../wire/fault.ts';

const BASE_SECONDS = 1;
const CAP_SECONDS = 30;
const JITTER = 0.25;
const RETRY_AFTER_CAP_SECONDS = 60;

/** Whether a failure of this kind may succeed at once when repeated; the total deadline never does. */
export function mayRetry(fault: Fault): boolean {
  return TRANSIENT_ERRORS.includes(fault.error_class) && fault.error_detail !== 'timeout_total';
}

/**
 * Seconds to sleep after failed attempt `attempt` (from 1).
 * @param random uniform in [0, 1)
 */
export function retryDelay(attempt: number, retryAfter: number | null, random: () => number): number {
  if (retryAfter !== null) return Math.min(retryAfter, RETRY_AFTER_CAP_SECONDS);
  const exponential = Math.min(BASE_SECONDS * 2 ** (attempt - 1), CAP_SECONDS);
  return exponential * (1 - JITTER + 2 * JITTER * random());
}

/** Seconds a response asks to wait: `retry-after-ms`, else `retry-after` in seconds or as an HTTP date; null when absent or unreadable. */
export function retryAfterSeconds(header: (name: string) => string | null, now: number): number | null {
  const ms = decimal(header('retry-after-ms'));
  if (ms !== null) return ms / 1000;
  const value = header('retry-after');
  if (value === null) return null;
  const seconds = decimal(value);
  if (seconds !== null) return seconds;
  // Date.parse reads many things as a date; an HTTP date always starts with its weekday.
  const at = /^[A-Za-z]{3,}, /.test(value.trim()) ? Date.parse(value) : Number.NaN;
  return Number.isNaN(at) ? null : Math.max(0, (at - now) / 1000);
}

function decimal(value: string | null): number | null {
  const text = value?.trim() ?? '';
  return /^\d+(\.\d+)?$/.test(text) ? Number(text) : null;
}
