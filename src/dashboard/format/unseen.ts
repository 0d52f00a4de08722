// Characters that nobody sees, or that make others stand elsewhere: what a person approves must not hide behind them.

/** Control and format characters by their code; lines, tabs and the joiner within an emoji stay. */
export function visible(text: string): string {
  return text.replace(
    /(?![\n\t\u200d])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu,
    (char) => `\\u{${char.codePointAt(0)!.toString(16)}}`,
  );
}
