// Prompts of one session that wait for the end of their turn (19 §4).
import type { StopReason } from '@agentclientprotocol/sdk';
import { RequestError } from '@agentclientprotocol/sdk';
import type { StreamEvent, Turn } from '#client/client.ts';

/** How a turn ended, as an editor is told. */
export type Ending =
  | { readonly stopReason: StopReason; readonly why: string | null }
  | { readonly failed: RequestError };

type TurnEnd = Extract<StreamEvent, { type: 'turn.completed' | 'turn.failed' | 'turn.cancelled' }>;

export function endingOf(event: TurnEnd): Ending {
  if (event.type === 'turn.cancelled') return { stopReason: 'cancelled', why: null };
  if (event.type === 'turn.failed') return failed(event.payload.error_message, event.payload.error_code);
  return completed(event.payload.stop_reason);
}

/** The same of a turn that was read. Null while it has not ended. */
export function endingOfTurn({ status, stop_reason, error_message, error_code }: Turn): Ending | null {
  if (status === 'cancelled') return { stopReason: 'cancelled', why: null };
  if (status === 'failed') return failed(error_message ?? 'the turn failed', error_code ?? 'internal_error');
  return status === 'completed' ? completed(stop_reason ?? 'end_turn') : null;
}

function failed(message: string, code: string): Ending {
  return { failed: RequestError.internalError({ code }, message) };
}

function completed(stop: NonNullable<Turn['stop_reason']>): Ending {
  if (stop === 'max_tokens') return { stopReason: 'max_tokens', why: null };
  if (stop === 'tool_use') return { stopReason: 'max_turn_requests', why: 'Stopped at the limit of model calls.' };
  if (stop === 'budget_exceeded') return { stopReason: 'max_turn_requests', why: 'Stopped: the limit is reached.' };
  return { stopReason: 'end_turn', why: null };
}

export interface Prompts {
  /** Resolves with the end of the turn, past or to come. */
  end(turn: string): Promise<Ending>;
  ended(turn: string, ending: Ending): void;
  waiting(): readonly string[];
  /** No end can be received any more: those that wait reject, and so do later ones. */
  giveUp(error: unknown): void;
  /** Throws what `giveUp` was called with. */
  requireWatched(): void;
}

export function createPrompts(): Prompts {
  const known = new Map<string, Ending>();
  const open = new Map<string, { resolve(ending: Ending): void; reject(error: unknown): void }>();
  let lost: { readonly error: unknown } | null = null;
  return {
    end: (turn) =>
      new Promise((resolve, reject) => {
        const ending = known.get(turn);
        if (ending !== undefined) resolve(ending);
        else if (lost !== null) reject(lost.error);
        else open.set(turn, { resolve, reject });
      }),
    ended(turn, ending) {
      // A turn may end before its submission is answered.
      known.set(turn, ending);
      open.get(turn)?.resolve(ending);
      open.delete(turn);
    },
    waiting: () => [...open.keys()],
    giveUp(error) {
      lost = { error };
      for (const { reject } of open.values()) reject(error);
      open.clear();
    },
    requireWatched() {
      if (lost !== null) throw lost.error;
    },
  };
}
