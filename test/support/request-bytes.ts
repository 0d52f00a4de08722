// Parts of a request as the bytes that were sent: a prompt cache compares nothing else.
import type { FakeCall } from './fake-provider.ts';

/** Anthropic: everything before the messages, cache marks included. */
export function headBytes({ text }: FakeCall): string {
  return text.slice(0, place(text, ',"messages":['));
}

/** The tool definitions. */
export function toolBytes({ text, wire }: FakeCall): string {
  const from = place(text, '"tools":[');
  return wire === 'anthropic' ? text.slice(from, place(text, ',"messages":[')) : text.slice(from);
}

/** The messages up to the end of the newest one, without the mark that moves along with it. */
export function historyBytes({ text, wire }: FakeCall): string {
  const from = place(text, '"messages":[');
  const to = wire === 'anthropic' ? text.length - ']}'.length : place(text, '],"stream":true');
  return text.slice(from, to).replaceAll(',"cache_control":{"type":"ephemeral"}', '');
}

function place(text: string, what: string): number {
  const at = text.indexOf(what);
  if (at < 0) throw new Error(`the request has no ${what}`);
  return at;
}
