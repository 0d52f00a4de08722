// What became of questions that stood in the inbox: answered here, by another person, or by nobody in time.
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Confirmation } from '#client/client.ts';
import { useApi } from '#dashboard/data/api.ts';
import { Badge, type Tone } from '#dashboard/parts/badge.tsx';
import { Time } from '#dashboard/parts/time.tsx';

const KEPT = 8;
const WORDS: Readonly<Record<string, { readonly word: string; readonly tone: Tone }>> = {
  approve: { word: 'approved', tone: 'ok' },
  modify: { word: 'approved with other arguments', tone: 'ok' },
  reject: { word: 'rejected', tone: 'bad' },
  timeout: { word: 'not answered in time', tone: 'warn' },
  cancelled: { word: 'cancelled with its turn', tone: 'plain' },
};

/** Newest first: what was open and is no longer. */
export function useDecided(open: readonly Confirmation[] | null): readonly Confirmation[] {
  const { client, failed } = useApi();
  const before = useRef<readonly Confirmation[]>([]);
  const [decided, setDecided] = useState<readonly Confirmation[]>([]);
  useEffect(() => {
    if (open === null) return;
    const now = new Set(open.map((one) => one.confirmation_request_id));
    const gone = before.current.filter((one) => !now.has(one.confirmation_request_id));
    before.current = open;
    for (const { confirmation_request_id } of gone) {
      client
        .getConfirmation(confirmation_request_id)
        .then((one) => setDecided((all) => [one, ...all].slice(0, KEPT)), failed);
    }
  }, [client, failed, open]);
  return decided;
}

export function Decided(props: { readonly decided: readonly Confirmation[]; readonly mine: ReadonlySet<string> }) {
  return (
    <section class="decided" aria-label="Just decided" aria-live="polite">
      {props.decided.length > 0 && <h2>Just decided</h2>}
      {props.decided.map((one) => {
        const { word, tone } = WORDS[one.decision ?? ''] ?? { word: one.decision ?? 'gone', tone: 'plain' };
        const by =
          one.resolved_by !== 'user' ? '' : props.mine.has(one.confirmation_request_id) ? 'by you' : 'by someone else';
        return (
          <p key={one.confirmation_request_id}>
            <code>{one.tool_name}</code> <Badge tone={tone}>{word}</Badge>{' '}
            <span class="quiet">
              {by} {one.resolved_at && <Time at={one.resolved_at} />}
              {one.reason && ` · “${one.reason}”`}
            </span>
          </p>
        );
      })}
    </section>
  );
}
