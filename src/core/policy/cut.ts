// Cutting a text to a length without splitting a character.

/** The first `max` UTF-16 units of the text, one less where the last would be half a surrogate pair. */
export function cutText(text: string, max: number): string {
  if (text.length <= max) return text;
  const last = text.charCodeAt(max - 1);
  return text.slice(0, (last & 0xfc00) === 0xd800 ? max - 1 : max);
}

/** Most of a stranger's name that an error repeats. */
export const MAX_SHOWN = 100;

/** A stranger's name as an error repeats it: quoted, and no longer than helps to find it. */
export function shownName(name: string): string {
  return JSON.stringify(name.length > MAX_SHOWN ? `${cutText(name, MAX_SHOWN)}…` : name);
}
