// Counts as people read them.

/** `1,234`. */
export function count(n: number): string {
  return String(n).replace(/\B(?=(\d{3})+$)/g, ',');
}

/** `950`, `1.2k`, `34k`, `1.2M`: for tokens where the exact count stands on hover. */
export function shortCount(n: number): string {
  if (n < 1000) return String(n);
  if (n < 1_000_000) return `${scaled(n / 1000)}k`;
  return `${scaled(n / 1_000_000)}M`;
}

/** A model id without its provider: `anthropic:claude-haiku-4-5` → `claude-haiku-4-5`. */
export function modelName(id: string): string {
  return id.slice(id.indexOf(':') + 1);
}

/** The last part of a path. */
export function baseName(path: string): string {
  return path.replace(/\/+$/, '').split('/').at(-1) || path;
}

export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

function scaled(n: number): string {
  return n < 10 ? n.toFixed(1).replace(/\.0$/, '') : String(Math.floor(n));
}
