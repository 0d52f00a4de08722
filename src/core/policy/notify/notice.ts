// The body of a notice about an event, and its signature (20 §7).
import { createHmac } from 'node:crypto';
import type { AnyEvent } from '#protocol/event.ts';
import { scrub } from '#protocol/text/scrub.ts';
import { cutText } from '../cut.ts';

const MAX_TEXT = 500;

export interface NoticeAround {
  readonly secrets: readonly string[];
  /** Paths below it are kept. */
  readonly workspace: string | null;
  /** Of a private session (23 §1): ids, words of closed lists and amounts alone. */
  readonly withoutText?: boolean;
}

/** The body. Every text of an event that may quote people, files or commands is scrubbed and cut to 500 characters. */
export function noticeBody(event: AnyEvent, around: NoticeAround): string {
  if (around.withoutText) return JSON.stringify({ event: { ...event, payload: dropTexts(event.payload) } });
  const payload = event.sensitivity === 'private' ? scrubValue(event.payload, around) : event.payload;
  return JSON.stringify({ event: { ...event, payload } });
}

/** Fields whose texts are ids, amounts or words of a closed list. */
const PLAIN_FIELD =
  /(_id|_usd|_at)$|^(decision|scope|resolved_by|status|disposition|failure_mode|error_code|error_class|stop_reason|tier|model)$/;

function dropTexts(value: unknown, field = ''): unknown {
  if (typeof value === 'string') return PLAIN_FIELD.test(field) ? value : '';
  if (Array.isArray(value)) return value.map((item) => dropTexts(item, field));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).flatMap(([key, item]) => (/^[a-z_0-9]+$/.test(key) ? [[key, dropTexts(item, key)]] : [])),
  );
}

function scrubValue(value: unknown, around: NoticeAround): unknown {
  if (typeof value === 'string') return cutText(scrub(value, around), MAX_TEXT);
  if (Array.isArray(value)) return value.map((item) => scrubValue(item, around));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [cutText(scrub(key, around), MAX_TEXT), scrubValue(item, around)]),
  );
}

/** `t=<unix seconds>,v1=<hex HMAC-SHA256 of "t.body">`. */
export function signature(secret: string, body: string, now: number): string {
  const t = Math.floor(now / 1000);
  return `t=${t},v1=${createHmac('sha256', secret).update(`${t}.${body}`).digest('hex')}`;
}
