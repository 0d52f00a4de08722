// The arguments of a tool call: a model wrote them, so they are bounded before they are parsed (11.3 rule 6).
import { faultOfJson } from '#core/policy/parsing/json.ts';
import { faultOfValue, MODEL_JSON } from '#core/policy/parsing/limits.ts';

/** Tool arguments as an object; `cut` when the stream broke off inside them. */
export function parseArguments(
  json: string,
  cut: boolean,
): { readonly input: Readonly<Record<string, unknown>>; readonly error: string | null } {
  if (json.trim() === '' && !cut) return { input: {}, error: null };
  // Before parsing: what is nested too deep could be neither stored nor sent.
  let reason = faultOfJson(json, MODEL_JSON);
  try {
    if (reason !== null) return { input: {}, error: cut ? 'incomplete' : `invalid_json: ${reason}` };
    const value: unknown = JSON.parse(json);
    if (typeof value === 'object' && value !== null && !Array.isArray(value))
      return { input: value as Record<string, unknown>, error: null };
    reason = 'not an object';
  } catch (error) {
    reason = error instanceof Error ? error.message : 'unreadable';
  }
  return { input: {}, error: cut ? 'incomplete' : `invalid_json: ${reason}` };
}

/**
 * The text of arguments that a server sent as a value instead of as text. One that is nested too deep has no text:
 * its call is marked as refused.
 */
export function argumentsText(slot: { refused: string | null }, value: object): string {
  slot.refused ??= faultOfValue(value, MODEL_JSON);
  return slot.refused === null ? JSON.stringify(value) : '';
}
