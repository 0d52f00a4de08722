// What one provider's wire protocol has to say to the shared HTTP transport.
import { faultOfValue, MODEL_JSON } from '../policy/parsing/limits.ts';
import type { CanonicalRequest } from '../ports/provider.ts';
import type { Assembly, Slot } from './assembly.ts';

/** Reads the events of one response into an assembly. */
export interface Decoder {
  /** One server-sent event that is not a comment. Throws `WireFault` for a reported failure, `SyntaxError` for data that is not JSON. */
  event(data: string): void;
  /** The body ended without a word of its own: completes the assembly where that is enough. */
  end(): void;
}

export interface Wire {
  /** Appended to the base URL. */
  readonly path: string;
  /** Credential and version headers. */
  readonly headers: Readonly<Record<string, string>>;
  /** The JSON body; equal requests give equal bytes. */
  encode(request: CanonicalRequest): string;
  decoder(assembly: Assembly): Decoder;
}

/**
 * The text of arguments that a server sent as a value instead of as text. One that is nested too deep has no text:
 * its call is marked as refused.
 */
export function argumentsText(slot: Pick<Slot, 'refused'>, value: object): string {
  slot.refused ??= faultOfValue(value, MODEL_JSON);
  return slot.refused === null ? JSON.stringify(value) : '';
}
