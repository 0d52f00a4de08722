// What the network throws, as a fault (11.7).
import { type Fault, fault } from '../wire/fault.ts';

/** A socket that failed or bytes that make no sense; `error_detail` is the system's code where there is one. */
export function networkFault(error: unknown, detail: string | null = null): Fault {
  const code = error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : null;
  return fault('network', detail ?? code, messageOf(error));
}

/** A name with several addresses fails with one error for each, and none of its own. */
function messageOf(error: unknown): string {
  if (error instanceof AggregateError && error.message === '') return error.errors.map(messageOf).join('; ');
  return error instanceof Error ? error.message : String(error);
}
