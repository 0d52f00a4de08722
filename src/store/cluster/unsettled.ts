// Rows of trees that this node is writing: until the answer is here, what is read of them may be old (16 §4.2).

export interface Unsettled {
  /** Before the statement; the function that it returns, once its outcome is known. */
  begin(root: string): () => void;
  /** The trees whose rows are being written from now on, those included that are at this moment. The next watch ends it. */
  watch(): ReadonlySet<string>;
}

export function createUnsettled(): Unsettled {
  const now = new Set<string>();
  let seen = new Set<string>();
  return {
    begin(root) {
      now.add(root);
      seen.add(root);
      return () => void now.delete(root);
    },
    watch() {
      seen = new Set(now);
      return seen;
    },
  };
}
