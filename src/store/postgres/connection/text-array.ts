// A text array in PostgreSQL's binary form: unlike the text form, neither side escapes what is in it.

/** The object id of the type `text`. */
const TEXT = 25;
const HEADER_BYTES = 20;
const LENGTH_BYTES = 4;
const NULL_LENGTH = -1;

/** The value of a parameter of type `text[]`, with one dimension. A raw NUL becomes U+FFFD, as in other texts (16 §2). */
export function encodeTextArray(values: readonly (string | null)[]): Buffer {
  const texts = values.map((value) => (value?.includes('\0') ? value.replaceAll('\0', '\uFFFD') : value));
  const lengths = texts.map((text) => (text === null ? NULL_LENGTH : Buffer.byteLength(text)));
  const bytes = lengths.reduce((sum, length) => sum + LENGTH_BYTES + Math.max(0, length), HEADER_BYTES);
  const buffer = Buffer.allocUnsafe(bytes);
  let at = 0;
  const writeInteger = (value: number) => {
    at = buffer.writeInt32BE(value, at);
  };
  // Dimensions, whether a value is null, type of the values; then the number of values and the first one's index.
  for (const field of [1, Number(lengths.includes(NULL_LENGTH)), TEXT, texts.length, 1]) writeInteger(field);
  for (const [i, text] of texts.entries()) {
    writeInteger(lengths[i]!);
    if (text !== null) at += buffer.write(text, at);
  }
  return buffer;
}
