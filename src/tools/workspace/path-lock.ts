// Who changes a file waits for whoever changes it now: one queue per real path, for the whole process (09 §8).

const tails = new Map<string, Promise<unknown>>();

/** Runs `fn` when everybody who asked for this path before has finished, whether well or not. */
export async function exclusive<T>(realPath: string, fn: () => Promise<T>): Promise<T> {
  const before = tails.get(realPath) ?? Promise.resolve();
  const turn = before.then(fn);
  const tail = turn.catch(() => {});
  tails.set(realPath, tail);
  try {
    return await turn;
  } finally {
    if (tails.get(realPath) === tail) tails.delete(realPath);
  }
}
