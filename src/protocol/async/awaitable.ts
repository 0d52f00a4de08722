// A value that may be there already: the embedded store answers at once, PostgreSQL when its answer arrives.

/** A value or a promise of it; `await` takes both. */
export type Awaitable<T> = T | Promise<T>;

/**
 * Continues with a value at once where it is there, and otherwise when its promise resolves. For what every turn runs: an
 * `async` function makes a promise and an `await` another, although nothing waits.
 */
export function continueWith<T, R>(value: Awaitable<T>, next: (value: T) => Awaitable<R>): Awaitable<R> {
  return value instanceof Promise ? value.then(next) : next(value);
}

/** The values of a list once all are there, as `Promise.all`. */
export function gatherAll<T extends readonly unknown[] | []>(
  values: T,
): Awaitable<{ -readonly [K in keyof T]: Awaited<T[K]> }> {
  type Gathered = { -readonly [K in keyof T]: Awaited<T[K]> };
  return values.some((value) => value instanceof Promise) ? Promise.all(values) : (values as unknown as Gathered);
}
