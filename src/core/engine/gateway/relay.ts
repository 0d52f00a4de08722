// How a call's bytes go to its provider and back, and what came of it (19 §2.2).

import { type RelayAnswer, RelayFault, type RelayHeaders, type RelayRequest } from '#core/ports/relay.ts';
import type { ClientWire } from '#protocol/api/gateway.ts';
import type { Engine } from '../state/engine.ts';
import type { Outcome } from '../state/gateway-memory.ts';
import type { GatewayClient } from './client.ts';
import { untilTaken } from './patience.ts';

export interface GatewayRequest {
  readonly wire: ClientWire;
  /** Behind the wire's endpoint, with its query. */
  readonly tail: string;
  readonly headers: RelayHeaders;
  readonly client: GatewayClient;
  /** The body's bytes, handed out once. */
  takeBody(): Buffer;
  /** Aborts when the client has gone. */
  readonly signal: AbortSignal;
}

/** Where the answer goes. */
export interface GatewaySink {
  head(status: number, headers: RelayHeaders): void;
  /** Resolves when the client can take more. */
  write(piece: Uint8Array): Promise<void> | undefined;
  end(): void;
  /** The answer broke off: the client must not take it for whole. */
  cut(): void;
}

export function relayRequest(
  { wire, tail, headers }: GatewayRequest,
  pieces: readonly Buffer[],
  rest: Pick<RelayRequest, 'withhold_usage' | 'request_id'>,
): RelayRequest {
  const held = { pieces };
  return {
    wire,
    tail,
    headers,
    body_bytes: pieces.reduce((sum, piece) => sum + piece.byteLength, 0),
    takeBody() {
      const taken = held.pieces;
      held.pieces = [];
      return taken;
    },
    ...rest,
  };
}

export function send(
  engine: Engine,
  adapter: string,
  request: RelayRequest,
  signal: AbortSignal,
): Promise<RelayAnswer> {
  return engine.relays.get(adapter)!.send(request, engine.config.gateway.credentials === 'server', signal);
}

export async function pump(
  { clock }: Engine,
  { body }: RelayAnswer,
  { sink, signal }: { readonly sink: GatewaySink; readonly signal: AbortSignal },
): Promise<void> {
  for await (const piece of body) {
    const full = sink.write(piece);
    if (full !== undefined) await untilTaken(clock, full, signal);
  }
}

export function outcomeOf(answer: RelayAnswer, broken: unknown, signal: AbortSignal): Outcome {
  const reading = answer.reading();
  const { fault } = reading;
  if (broken !== null) return { reading, ...brokenOff(broken, signal) };
  const rest = { reading, error_detail: null, counts: true };
  if (fault !== null) {
    const name = fault.name === null ? '' : ` (${fault.name})`;
    const { error_class, error_detail } = fault;
    return { ...rest, error_class, error_detail, said: `the provider answered ${answer.status}${name}` };
  }
  if (reading.whole) return { ...rest, error_class: null, said: '' };
  return { ...rest, error_class: 'network', said: 'the stream ended before the answer was whole' };
}

/** How a call ended that threw. What this server could not hand on says nothing about the provider. */
export function brokenOff(error: unknown, signal: AbortSignal): Omit<Outcome, 'reading'> {
  const isFault = error instanceof RelayFault;
  return {
    error_class: signal.aborted ? 'cancelled' : isFault ? error.error_class : 'other',
    error_detail: null,
    said: isFault ? error.message : 'the answer could not be handed on',
    counts: isFault,
  };
}
