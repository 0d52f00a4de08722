// A model call that is ready to leave.
import type { CanonicalRequest } from '../../domain/model-request.ts';

export interface ModelRequest {
  readonly request: CanonicalRequest;
  /** Tokens, by the guess that routing uses. */
  readonly estimated: number;
}
