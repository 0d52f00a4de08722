// A model call that is ready to leave.
import type { Purpose } from '../../domain/event/llm.ts';
import type { CanonicalRequest } from '../../domain/model-request.ts';
import type { Window } from '../../policy/context/window.ts';

export interface ModelRequest {
  readonly purpose: Purpose;
  readonly request: CanonicalRequest;
  /** Tokens, by the guess that routing uses. */
  readonly estimated: number;
  /** Tokens as they count against the window (10 §7). */
  readonly load: number;
  readonly window: Window;
}
