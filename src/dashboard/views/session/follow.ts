// Where a conversation is scrolled to: at its end while one reads there, and still where one reads while more comes.
import { useLayoutEffect, useRef } from 'preact/hooks';
import type { Live } from './use-live-session.ts';

/** From how far above its end the conversation is still taken to be read at its end. */
const NEAR = 80;

interface Anchor {
  readonly element: Element;
  readonly top: number;
}

/** Keeps the end in sight while one reads there, and what one reads in place when older messages come in above it. */
export function useFollow(frame: number, loadOlder: Live['loadOlder']) {
  const box = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  const anchor = useRef<Anchor | null>(null);
  const older = (element: HTMLElement) =>
    void loadOlder(() => {
      anchor.current = anchorIn(element);
    });

  useLayoutEffect(() => {
    const element = box.current;
    if (element === null) return;
    const look = () => {
      atEnd.current = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR;
      if (element.scrollTop < element.clientHeight) older(element);
    };
    // What one folds out is read where it stands.
    const onClick = (event: MouseEvent) => {
      if (event.target instanceof Element && event.target.closest('summary, .clipped, .more') !== null)
        atEnd.current = false;
    };
    // What is folded out or becomes measured moves the end as well.
    const observer = new ResizeObserver(() => {
      if (atEnd.current) element.scrollTop = element.scrollHeight;
    });
    element.addEventListener('click', onClick, true);
    element.addEventListener('scroll', look, { passive: true });
    observer.observe(element);
    if (element.firstElementChild) observer.observe(element.firstElementChild);
    return () => {
      element.removeEventListener('click', onClick, true);
      element.removeEventListener('scroll', look);
      observer.disconnect();
    };
  }, [loadOlder]);

  useLayoutEffect(() => {
    const element = box.current;
    if (element === null) return;
    const kept = anchor.current;
    anchor.current = null;
    if (atEnd.current) element.scrollTop = element.scrollHeight;
    else if (kept !== null) element.scrollTop += kept.element.getBoundingClientRect().top - kept.top;
    // A page of older messages may hold nothing that is seen, such as results of tools: nothing moves, nobody scrolls.
    const unfilled = element.scrollHeight <= element.clientHeight;
    if (unfilled || (!atEnd.current && element.scrollTop < element.clientHeight)) older(element);
  }, [frame]);
  return box;
}

/** The first message of which something is seen. */
function anchorIn(box: HTMLElement): Anchor | null {
  const edge = box.getBoundingClientRect().top;
  for (const element of box.querySelectorAll('.message')) {
    const { top, bottom } = element.getBoundingClientRect();
    if (bottom > edge) return { element, top };
  }
  return null;
}
