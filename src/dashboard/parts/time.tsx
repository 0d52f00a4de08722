// Times: relative, with the absolute on hover, and lengths that tick.
import { useNow } from '../data/now.ts';
import { absoluteTime, duration, relativeTime } from '../format/time.ts';

/** `at` as the server writes times. */
export function Time({ at }: { readonly at: string }) {
  const now = useNow();
  const ms = Date.parse(at);
  return (
    <time dateTime={at} title={absoluteTime(ms)} class="number">
      {relativeTime(ms, now)}
    </time>
  );
}

/** How long something takes, ticking until it has ended. */
export function Elapsed({ from, to }: { readonly from: string; readonly to: string | null }) {
  const now = useNow(to === null);
  const end = to === null ? now : Date.parse(to);
  return (
    <span class="number" title={`since ${absoluteTime(Date.parse(from))}`}>
      {duration(end - Date.parse(from))}
    </span>
  );
}
