// A value with a text in the place of each of its strings, one after the other.

/** @param text what stands in the place */
export function fieldVariants(value: unknown, text: string): unknown[] {
  if (typeof value === 'string') return [text];
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([name, item]) =>
    fieldVariants(item, text).map((changed) =>
      Array.isArray(value) ? value.with(Number(name), changed) : { ...value, [name]: changed },
    ),
  );
}

/** The same of an answer's pieces, each of them a JSON value or an event that holds one. */
export function answerVariants(parts: readonly string[], text: string): string[][] {
  return parts.flatMap((part, at) => {
    const [, before, json, after] = /^([^{]*)(\{.*\})(\s*)$/s.exec(part) ?? [];
    if (json === undefined) return [];
    const values = fieldVariants(JSON.parse(json), text);
    return values.map((value) => parts.with(at, `${before}${JSON.stringify(value)}${after}`));
  });
}
