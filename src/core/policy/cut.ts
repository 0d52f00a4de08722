// Truncates a text without splitting a character.

/** The first `max` UTF-16 units of the text, one less where the last would be half a surrogate pair. */
export function cutText(text: string, max: number): string {
  if (text.length <= max) return text;
  const last = text.charCodeAt(max - 1);
  if ((last & 0xfc00) === 0xd800) return text.slice(0, max - 1);
  return text.slice(0, max);
}

/** Maximum characters of an untrusted name in an error. */
export const MAX_SHOWN = 100;

/** An untrusted name for an error: quoted and truncated. */
export function shownName(name: string): string {
  if (name.length <= MAX_SHOWN) return JSON.stringify(name);
  return JSON.stringify(`${cutText(name, MAX_SHOWN)}…`);
}
