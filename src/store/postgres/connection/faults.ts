// Which faults say what about a statement (16 §3.4).

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : '';
}

/** A statement behind one that failed. */
export function isAborted(error: unknown): boolean {
  return codeOf(error) === '25P02';
}

/** The connection or the server is gone, or short of something: the same may succeed a moment later (16 §3.4). */
export function isTransient(error: unknown): boolean {
  return isConnectionFault(error) || /^(08|57|40|53)/.test(codeOf(error));
}

/** The database ended it, because it took longer than a statement may. */
export function isOutOfTime(error: unknown): boolean {
  return codeOf(error) === '57014';
}

/** That, or nothing was heard of it for longer still. */
export function isTooSlow(error: unknown): boolean {
  return isOutOfTime(error) || (error instanceof Error && error.message.includes('Query read timeout'));
}

const SOCKET_FAULTS = ['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'ETIMEDOUT', 'ENOTFOUND', 'EHOSTUNREACH', 'EAI_AGAIN'];

/** Nobody can say what became of the last statement. */
export function isConnectionFault(error: unknown): boolean {
  const code = codeOf(error);
  if (SOCKET_FAULTS.includes(code) || /^(08|57P0|25P03)/.test(code)) return true;
  return (
    error instanceof Error &&
    /Connection terminated|timeout exceeded when trying to connect|Query read timeout|Client has encountered/.test(
      error.message,
    )
  );
}
