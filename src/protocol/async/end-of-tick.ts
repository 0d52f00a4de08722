// Work that waits until the tick's other callbacks have run. One tick of the process serves all of it: each has its cost.

const due: (() => void)[] = [];

/** Calls `run` behind what runs now, in the order of the calls. `run` must not throw. */
export function runAtEndOfTick(run: () => void): void {
  if (due.push(run) === 1) process.nextTick(runDue);
}

function runDue(): void {
  try {
    // What they add runs in the same pass.
    for (let i = 0; i < due.length; i++) due[i]!();
  } finally {
    due.length = 0;
  }
}
