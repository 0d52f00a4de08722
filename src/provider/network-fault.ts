// What `fetch` throws, as a fault (11.7).
import { type Fault, fault } from '../wire/fault.ts';

/** A socket that failed or bytes that make no sense; `error_detail` is the system's code where there is one. */
export function networkFault(error: unknown, detail: string | null = null): Fault {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : null;
  const code = cause !== null && 'code' in cause && typeof cause.code === 'string' ? cause.code : null;
  const text = error instanceof Error ? error.message : String(error);
  return fault('network', detail ?? code, cause === null ? text : `${text}: ${cause.message}`);
}

/** What `fetch` says of a redirect it has to refuse; null for anything else. Another try would end the same way. */
export function redirectFault(error: unknown): Fault | null {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause.message : '';
  if (cause !== 'unexpected redirect') return null;
  return fault('other', 'redirected', 'the provider answered with a redirect, which is not followed; correct base_url');
}
