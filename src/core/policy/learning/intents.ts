// What a message seems to be about, by the words in it (12 §12.2).
import { INTENTS, type Intent } from '#protocol/learning/pattern.ts';

const WORDS: Readonly<Record<Intent, RegExp>> = {
  commit: /\b(commit|stage|git add)\b/i,
  refactor: /\b(refactor|rename|extract|inline|cleanup|simplif)/i,
  architecture: /\b(architect|(design|module|abstraction|interface)\b)/i,
  debug: /\b(debug|bug|error|stack ?trace|broken|fails?)\b/i,
  doc: /\b(docs?|document|readme|comment|docstring)\b/i,
  test: /\b(tests?|pytest|unit ?test|e2e)\b/i,
};
/** What is looked at of a message, as by the predicates of rules. */
const MAX_LENGTH = 20_000;

/** In the order of the table. */
export function intentsOf(text: string): Intent[] {
  const looked = text.slice(0, MAX_LENGTH);
  return INTENTS.filter((intent) => WORDS[intent].test(looked));
}
