// Recognizes the messages by which a turn gets the results of its background workers (20 §9).

interface Part {
  readonly type: string;
  readonly text?: string;
}

const HEADING = /^\[worker sess_[0-9A-Z]{26} (?:completed|failed: [a-z_]+)\]$/;

/** Whether this message of role `user` holds the result of a background worker: no person wrote it. */
export function isDelivery({ role, content }: { readonly role: string; readonly content: readonly Part[] }): boolean {
  const [first] = content;
  return role === 'user' && first?.type === 'text' && HEADING.test(first.text ?? '');
}
