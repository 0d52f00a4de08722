// The live session as a hook: the stream, the queries that it triggers, and older messages on demand.
import { useCallback, useEffect, useLayoutEffect, useReducer, useRef } from 'preact/hooks';
import type { Delegation, MetisClient } from '#client/client.ts';
import { useApi, useSessionStream } from '#dashboard/data/api.ts';
import { loseMessages, takeMessages, takeNewest } from './live/live-messages.ts';
import { formatTail, type LiveSession, liveSession, takeTail } from './live/live-node.ts';
import { applyItem, takeWorkers } from './live/live-session.ts';

const NEWEST = 50;
const OLDER = 100;
const PAGE = 200;
/** Messages that the end of a worker's text is taken from, and how many workers are asked for theirs at once. */
const TAIL_MESSAGES = 6;
const MOST_TAILS = 40;
/** Pages of older messages that are read to close a gap. */
const BRIDGE = 5;

export interface Live {
  readonly live: LiveSession;
  /** Grows with every drawing. */
  readonly frame: number;
  /** Why it cannot be followed. */
  readonly error: unknown;
  /** `before` is called when they are here and not yet drawn. */
  readonly loadOlder: (before: () => void) => Promise<void>;
}

export function useLiveSession(sessionId: string): Live {
  const { client, reportFailure } = useApi();
  const [frame, redraw] = useReducer((n: number, _: undefined) => n + 1, 0);
  const ref = useRef<LiveSession>(liveSession(sessionId));
  if (ref.current.id !== sessionId) ref.current = liveSession(sessionId);
  const live = ref.current;

  const error = useSessionStream(
    sessionId,
    (items) => {
      for (const item of items) applyItem(live, item);
      redraw(undefined);
    },
    () => loseMessages(live),
  );

  const tails = useRef(0);
  useEffect(() => {
    const still = () => ref.current === live;
    if (live.wantsMessages) {
      live.wantsMessages = false;
      newestMessages(client, live).then(({ messages, hasOlder }) => {
        if (!still()) return;
        takeNewest(live, messages, hasOlder);
        redraw(undefined);
      }, reportFailure);
    }
    if (live.wantsWorkers) {
      live.wantsWorkers = false;
      fetchWorkers(client, sessionId).then((workers) => {
        if (!still()) return;
        takeWorkers(live, workers);
        redraw(undefined);
      }, reportFailure);
    }
    if (live.wantsEdits) {
      live.wantsEdits = false;
      editedCalls(client, sessionId).then((ids) => {
        if (!still()) return;
        for (const id of ids) live.edits.add(id);
        redraw(undefined);
      }, reportFailure);
    }
    for (const id of live.wantsTails) {
      live.wantsTails.delete(id);
      if (tails.current >= MOST_TAILS) continue;
      tails.current += 1;
      client
        .listMessages(id, { limit: TAIL_MESSAGES })
        .then(({ messages }) => {
          const node = live.nodes.find(({ session_id }) => session_id === id);
          if (!still() || node === undefined) return;
          takeTail(node, formatTail(messages));
          redraw(undefined);
        }, reportFailure)
        .finally(() => {
          tails.current -= 1;
        });
    }
  }, [client, reportFailure, live, sessionId, frame]);

  const loading = useRef(false);
  const loadOlder = useCallback(
    async (before: () => void) => {
      const first = live.messages[0];
      if (loading.current || !live.hasOlder || first === undefined) return;
      loading.current = true;
      try {
        const page = await client.listMessages(sessionId, { before: first.id, limit: OLDER });
        if (ref.current !== live) return;
        before();
        takeMessages(live, page.messages);
        live.hasOlder = page.has_more_before;
        redraw(undefined);
      } catch (reason) {
        reportFailure(reason);
      } finally {
        loading.current = false;
      }
    },
    [client, reportFailure, live, sessionId],
  );
  return { live, frame, error, loadOlder };
}

/** The newest, and as many before them as reach down to what is known to be whole, if those are not too many. */
async function newestMessages(client: MetisClient, { id, wholeUpTo }: LiveSession) {
  let page = await client.listMessages(id, { limit: NEWEST });
  let messages = page.messages;
  const behind = () => wholeUpTo !== null && page.has_more_before && (messages[0]?.id ?? '') > wholeUpTo;
  for (let pages = 0; behind() && pages < BRIDGE; pages++) {
    page = await client.listMessages(id, { before: messages[0]?.id, limit: OLDER });
    messages = [...page.messages, ...messages];
  }
  return { messages, hasOlder: page.has_more_before };
}

async function fetchWorkers(client: MetisClient, id: string): Promise<readonly Delegation[]> {
  const found: Delegation[] = [];
  for (let cursor: string | null | undefined; cursor !== null; ) {
    const page = await client.listWorkers(id, { recursive: true, limit: PAGE, ...(cursor && { cursor }) });
    found.push(...page.workers);
    cursor = page.next_cursor;
  }
  return found;
}

/** Calls that a person edited before they ran, those of its workers included. */
async function editedCalls(client: MetisClient, id: string): Promise<readonly string[]> {
  const found: string[] = [];
  for (let cursor: string | null | undefined; cursor !== null; ) {
    const query = { session_id: id, status: 'resolved', limit: PAGE, ...(cursor && { cursor }) } as const;
    const page = await client.listConfirmations(query);
    found.push(...page.confirmations.filter((one) => one.decision === 'modify').map((one) => one.tool_use_id));
    cursor = page.next_cursor;
  }
  return found;
}

// Where a conversation is scrolled to: at its end while one reads there, and still where one reads while more comes.

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
    const readScroll = () => {
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
    element.addEventListener('scroll', readScroll, { passive: true });
    observer.observe(element);
    if (element.firstElementChild) observer.observe(element.firstElementChild);
    return () => {
      element.removeEventListener('click', onClick, true);
      element.removeEventListener('scroll', readScroll);
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
    // A page of older messages may hold nothing that is seen, such as results of tools: nothing moves, and no scroll event follows.
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
