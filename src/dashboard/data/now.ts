// One clock for everything on the page that ages: a single timer, and none while nobody looks.
import { useEffect, useState } from 'preact/hooks';
import { systemClock } from '#protocol/clock.ts';

const TICK_MS = 1000;
const watchers = new Set<(now: number) => void>();
let timer: ReturnType<typeof setInterval> | undefined;

/** Unix milliseconds, anew every second while `ticking`. */
export function useNow(ticking = true): number {
  const [now, setNow] = useState(() => systemClock.now());
  useEffect(() => {
    if (!ticking) return;
    watchers.add(setNow);
    timer ??= setInterval(tick, TICK_MS);
    setNow(systemClock.now());
    return () => {
      watchers.delete(setNow);
      if (watchers.size > 0) return;
      clearInterval(timer);
      timer = undefined;
    };
  }, [ticking]);
  return now;
}

function tick(): void {
  if (document.visibilityState !== 'visible') return;
  const now = systemClock.now();
  for (const watcher of watchers) watcher(now);
}
