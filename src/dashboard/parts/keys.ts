// Keys that go from one entry of a list to the next, and whether a key is typed text.
import { useEffect, useRef } from 'preact/hooks';

/** A key that a field takes, or that belongs to the browser. */
export function isTyped(event: KeyboardEvent): boolean {
  const { target } = event;
  const inField =
    target instanceof HTMLInputElement || target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement;
  return inField || event.ctrlKey || event.metaKey || event.altKey;
}

/**
 * `j` and `k` go from one element of `selector` to the next; when one goes away under the focus, the next one gets it.
 * `shown` changes with what is listed.
 */
export function useMoveByKey(selector: string, shown: string) {
  const box = useRef<HTMLDivElement>(null);
  const at = useRef(-1);
  const entries = () => [...(box.current?.querySelectorAll<HTMLElement>(selector) ?? [])];
  useEffect(() => {
    if (at.current < 0 || document.activeElement !== document.body) return;
    const all = entries();
    all[Math.min(at.current, all.length - 1)]?.focus();
  }, [shown]);
  useEffect(() => {
    const onFocus = ({ target }: FocusEvent) => {
      at.current = entries().findIndex((entry) => target instanceof Node && entry.contains(target));
    };
    const moveByKey = (event: KeyboardEvent) => {
      const step = { j: 1, k: -1 }[event.key];
      if (step === undefined || isTyped(event) || document.querySelector('dialog[open]') !== null) return;
      const all = entries();
      if (all.length === 0) return;
      all[Math.max(0, Math.min(all.length - 1, at.current + step))]?.focus();
      event.preventDefault();
    };
    document.addEventListener('focusin', onFocus);
    document.addEventListener('keydown', moveByKey);
    return () => {
      document.removeEventListener('focusin', onFocus);
      document.removeEventListener('keydown', moveByKey);
    };
  }, []);
  return box;
}
