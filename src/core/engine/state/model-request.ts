// A model call that is ready to leave.

import type { Window } from '#core/policy/context/window.ts';
import type { Purpose } from '#protocol/event/llm.ts';
import type { CanonicalRequest } from '#protocol/model-request.ts';

export interface ModelRequest {
  readonly purpose: Purpose;
  readonly request: CanonicalRequest;
  /** Tokens, by the guess that routing uses. */
  readonly estimated: number;
  /** Tokens as they count against the window (10 §7). */
  readonly load: number;
  readonly window: Window;
}
