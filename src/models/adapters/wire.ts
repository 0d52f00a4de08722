// What one provider's wire protocol has to say to the shared HTTP transport.
import type { CanonicalRequest } from '#protocol/model-request.ts';
import type { Assembly } from '../wire/assembly.ts';
import type { Decoder } from '../wire/decoder.ts';

export interface Wire {
  /** Appended to the base URL. */
  readonly path: string;
  /** Credential and version headers. */
  readonly headers: Readonly<Record<string, string>>;
  /** The JSON body; equal requests give equal bytes. */
  encode(request: CanonicalRequest): Uint8Array;
  decoder(assembly: Assembly): Decoder;
}
