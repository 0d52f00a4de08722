// Text of models, callers and files as a terminal may show it.

/** What a terminal acts on or does not show: control and format characters, but for the joiners of emoji and scripts. */
const UNSEEN = String.raw`[\p{Cc}\p{Zl}\p{Zp}]|(?![\u200c\u200d])\p{Cf}`;
const ON_A_LINE = new RegExp(`(?:${UNSEEN})+`, 'gu');
const IN_A_TEXT = new RegExp(String.raw`(?![\n\t])(?:${UNSEEN})`, 'gu');
const IN_JSON = /[\x7f-\x9f\p{Cf}\p{Zl}\p{Zp}]/gu;

/** On one line, without what a terminal acts on: texts of models and callers move no cursor and look like nothing else. */
export function toPrintable(text: string): string {
  return text.replace(ON_A_LINE, ' ');
}

/** As it is but for what a terminal acts on: lines and tabs stay. For what is read on a terminal, never for a pipe. */
export function toPrintableText(text: string): string {
  return text.replaceAll('\r\n', '\n').replace(IN_A_TEXT, ' ');
}

/** A line of JSON. What a terminal would act on is escaped, which parsers read as the same text. */
export function toJsonLine(value: unknown): string {
  const escapeUnits = (char: string) =>
    char
      .split('')
      .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
      .join('');
  return `${JSON.stringify(value).replace(IN_JSON, escapeUnits)}\n`;
}
