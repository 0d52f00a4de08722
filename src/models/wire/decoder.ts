// How the events of a response reach an assembly, whichever wire they came over.

/** Reads the events of one response into an assembly. */
export interface Decoder {
  /** One server-sent event that is not a comment. Throws `WireFault` for a reported failure, `SyntaxError` for data that is not JSON. */
  event(data: string): void;
  /** The body ended without a word of its own: completes the assembly where that is enough. */
  end(): void;
}
