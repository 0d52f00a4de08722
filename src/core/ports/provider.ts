// The contract of the only code that talks to language models (11.2, 11.3, 11.7).
import type { CanonicalRequest, StreamEvent } from '#protocol/model-call.ts';
import type { ErrorClass } from '#protocol/scalars.ts';
import type { ReportedBill, TokenUsage } from '#protocol/usage.ts';

/** @param isWhole whether all events of the answer come in the same tick; absent = not known */
export type Deliver = (event: StreamEvent, isWhole?: boolean) => void;

/** The counts that a provider reported of an attempt, and what it bills beside them. */
export interface Spent {
  readonly usage: TokenUsage;
  readonly bill: ReportedBill | null;
}

/**
 * Asked before an attempt is repeated that the provider bills: its money is spent, and that of the next attempt comes on
 * top. False = the call fails with what it has spent. Absent = repeated without a question.
 */
export type MayRepeat = (spent: Spent) => Promise<boolean>;

/** Long-lived, stateless between calls, safe for concurrent calls. */
export interface ProviderAdapter {
  /** The adapter id of the registry: `anthropic`, `openai`, `scripted`, ... */
  readonly name: string;
  /**
   * Calls `deliver` with each event as soon as it is known; `deliver` must not throw. Resolves after the last event.
   * Rejects with `AdapterError`.
   */
  stream(request: CanonicalRequest, signal: AbortSignal, deliver: Deliver, mayRepeat?: MayRepeat): Promise<void>;
  /** Idempotent; aborts nothing in flight. */
  close(): Promise<void>;
}

/** Classes for which the same call may succeed later. */
export const TRANSIENT_ERRORS: readonly ErrorClass[] = ['rate_limit', 'server_error', 'network'];

export interface AdapterErrorFields {
  readonly error_class: ErrorClass;
  readonly error_detail?: string | null;
  readonly provider_status?: number | null;
  readonly request_id: string;
  readonly provider_request_id?: string | null;
  readonly retry_after_seconds?: number | null;
  readonly retry_count?: number;
  /** Counts the provider reported before the first event; null when it reported none. */
  readonly usage?: TokenUsage | null;
  readonly bill?: ReportedBill | null;
  readonly latency_ms?: number;
}

/** The only error an adapter throws. `message` is scrubbed and at most 2 000 characters. */
export class AdapterError extends Error {
  readonly error_class: ErrorClass;
  readonly error_detail: string | null;
  readonly provider_status: number | null;
  readonly request_id: string;
  readonly provider_request_id: string | null;
  readonly retry_after_seconds: number | null;
  readonly retry_count: number;
  readonly usage: TokenUsage | null;
  /** What the provider bills beside the tokens, likewise. */
  readonly bill: ReportedBill | null;
  readonly latency_ms: number;

  constructor(message: string, fields: AdapterErrorFields) {
    super(message);
    this.name = 'AdapterError';
    this.error_class = fields.error_class;
    this.error_detail = fields.error_detail ?? null;
    this.provider_status = fields.provider_status ?? null;
    this.request_id = fields.request_id;
    this.provider_request_id = fields.provider_request_id ?? null;
    this.retry_after_seconds = fields.retry_after_seconds ?? null;
    this.retry_count = fields.retry_count ?? 0;
    this.usage = fields.usage ?? null;
    this.bill = fields.bill ?? null;
    this.latency_ms = fields.latency_ms ?? 0;
  }

  get retryable(): boolean {
    return TRANSIENT_ERRORS.includes(this.error_class);
  }
}

/** The adapters that have usable credentials, by adapter id. */
export type Providers = ReadonlyMap<string, ProviderAdapter>;
