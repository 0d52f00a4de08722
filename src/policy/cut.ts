// Cutting a text to a length without splitting a character.

/** The first `max` UTF-16 units of the text, one less where the last would be half a surrogate pair. */
export function cutText(text: string, max: number): string {
  if (text.length <= max) return text;
  const last = text.charCodeAt(max - 1);
  return text.slice(0, (last & 0xfc00) === 0xd800 ? max - 1 : max);
}
