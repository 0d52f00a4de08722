// Bytes of a client's request to a provider and back, unchanged, with counts read alongside (19 §2.2).
import type { ClientWire } from '#protocol/client-wire.ts';
import type { StopReason } from '#protocol/message.ts';
import type { ErrorClass } from '#protocol/scalars.ts';
import type { ReportedBill } from '#protocol/usage.ts';

/** Headers of one connection, not of the message: no relay and no node passes them on. */
export const HOP_BY_HOP = [
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
];

/** Headers in the order of the wire, names in lower case, one entry a value. */
export type RelayHeaders = readonly (readonly [name: string, value: string])[];

export interface RelayRequest {
  readonly wire: ClientWire;
  /** Absent = POST. A request without a body is not recorded. */
  readonly method?: 'GET' | 'DELETE';
  /** Behind the wire's endpoint: `/count_tokens` and the like, with its query; '' for the endpoint itself. */
  readonly tail: string;
  readonly headers: RelayHeaders;
  readonly body_bytes: number;
  /** The pieces of the body in order. They are handed out once, so that the sender can free them. */
  takeBody(): readonly Uint8Array[];
  /** The client did not ask for the chunk of counts, so it is not passed on. */
  readonly withhold_usage: boolean;
  /** Names the recording of the exchange. */
  readonly request_id: string;
}

/** Token counts as far as the provider reported them; null = not reported. */
export interface ReportedUsage {
  readonly input: number | null;
  readonly cached: number | null;
  readonly creation: number | null;
  readonly creation1h: number | null;
  readonly output: number | null;
  readonly reasoning: number | null;
  /** The output count is preliminary. */
  readonly early: boolean;
}

/** An error that a provider reported, as it is stored: by its class and its name. */
export interface ReportedFault {
  readonly error_class: ErrorClass;
  /** 11.7. */
  readonly error_detail: string | null;
  readonly name: string | null;
}

/** Counts of an answer so far. None of its text is kept. */
export interface MeterReading {
  /** The sums of the rounds, where there are any. */
  readonly usage: ReportedUsage;
  /** Null when nothing is billed beside the tokens of one sampling. */
  readonly bill: ReportedBill | null;
  /** Null until the provider reports why it stopped. */
  readonly stop_reason: StopReason | null;
  readonly served_model: string | null;
  /** The provider's own id of its answer. */
  readonly response_id: string | null;
  /** Characters of the answer, for an estimate. */
  readonly characters: number;
  readonly tool_calls: number;
  readonly thinking_blocks: number;
  /** An answer that the provider makes in the background, of which the client fetches the end by its id. */
  readonly background: { readonly id: string; readonly done: boolean } | null;
  /** The answer came to its own end. */
  readonly whole: boolean;
  /** The provider reported an error, by its status or inside the answer. */
  readonly fault: ReportedFault | null;
}

export interface RelayAnswer {
  readonly status: number;
  readonly headers: RelayHeaders;
  /** Pieces as they arrive; the next one is read when the last was taken. Throws `RelayFault` where the answer breaks off. */
  readonly body: AsyncIterable<Uint8Array>;
  reading(): MeterReading;
}

/** No answer, or one that broke off. */
export class RelayFault extends Error {
  readonly error_class: ErrorClass;

  constructor(error_class: ErrorClass, message: string) {
    super(message);
    this.error_class = error_class;
    this.name = 'RelayFault';
  }
}

/** A provider's address, and the server's key for it. */
export interface Relay {
  /** The server has a key for it, or it needs none. */
  readonly keyed: boolean;
  /** Scheme, host and port of its address. */
  readonly origin: string;
  /**
   * @param withKey false = what the client sent is its credential
   * Throws `RelayFault`.
   */
  send(request: RelayRequest, withKey: boolean, signal: AbortSignal): Promise<RelayAnswer>;
}

/** Every adapter with an address, usable or not, by adapter id. */
export interface Relays extends ReadonlyMap<string, Relay> {}
