// Counts at a glance, the same in a terminal and in the dashboard.

const UNITS = [
  [1e3, 'k'],
  [1e6, 'M'],
  [1e9, 'G'],
] as const;

/** `950`, `1.2k`, `34k`, `1.2M`: for counts whose exact form stands elsewhere. Rounded to the nearest, half up. */
export function formatShortCount(count: number): string {
  if (count < 1000) return String(count);
  let text = '';
  for (const [unit, name] of UNITS) {
    const tenths = Math.round((count * 10) / unit) / 10;
    const rounded = tenths < 10 ? tenths : Math.round(count / unit);
    text = `${rounded}${name}`;
    if (rounded < 1000) break;
  }
  return text;
}
