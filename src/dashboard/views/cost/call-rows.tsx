// The calls of one session on one model, as the event log holds them: what each was stamped with, and costs by other prices.
import { useEffect, useState } from 'preact/hooks';
import type { CostRow, EventList } from '#client/client.ts';
import { explain, useApi } from '#dashboard/data/api.ts';
import { duration } from '#dashboard/format/time.ts';
import { Time } from '#dashboard/parts/time.tsx';
import type { CostAnswer } from './cost-report.ts';
import { Figures, NoFigures } from './figures.tsx';

const PAGE = 200;

type Call = Extract<EventList['events'][number], { type: 'llm.call_completed' }>;
interface Calls {
  readonly calls: readonly Call[];
  readonly next: string | null;
}

export function CallRows(props: { readonly answer: CostAnswer; readonly row: CostRow; readonly repriced: boolean }) {
  const { client, failed } = useApi();
  const { session_id, model } = props.row;
  const { window } = props.answer.groups;
  const [read, setRead] = useState<Calls | null>(null);
  const [error, setError] = useState<string | null>(null);

  const ask = async (cursor: string | null, signal?: AbortSignal) => {
    const query = { types: ['llm.call_completed'] as const, limit: PAGE, ...(cursor === null ? {} : { cursor }) };
    const page = await client.listEvents(session_id ?? '', query, { signal });
    const calls = page.events.filter(
      (event): event is Call =>
        event.type === 'llm.call_completed' &&
        event.payload.model === model &&
        event.timestamp >= window.start &&
        event.timestamp < window.end,
    );
    setRead((before) => ({
      calls: [...(cursor === null ? [] : (before?.calls ?? [])), ...calls],
      next: page.next_cursor,
    }));
  };
  const fail = (reason: unknown) => {
    failed(reason);
    setError(explain(reason));
  };
  useEffect(() => {
    const gone = new AbortController();
    ask(null, gone.signal).catch((reason) => {
      if (!gone.signal.aborted) fail(reason);
    });
    return () => gone.abort();
    // A session's calls as they stand when it is unfolded.
  }, [session_id, model, window.end]);

  const prices = useRepriced(props, read?.calls ?? []);

  if (error !== null || read === null || (read.calls.length === 0 && read.next === null)) {
    const text = error ?? (read === null ? 'Loading…' : 'The events of these calls are no longer kept; their cost is.');
    return (
      <tr class="nested calls-foot">
        <td class={error === null ? 'quiet' : 'field-error'}>{text}</td>
        <td data-column="share" />
        <NoFigures repriced={props.repriced} />
      </tr>
    );
  }
  return (
    <>
      {read.calls.map(({ id, timestamp, payload }) => (
        <tr key={id} class="nested call">
          <th scope="row">
            <Time at={timestamp} />
            <span class="quiet">
              {' '}
              · {payload.stop_reason.replaceAll('_', ' ')}
              {payload.purpose === 'compaction' && ' · compaction'}
              {!payload.priced && ' · no price'}
            </span>
          </th>
          <td data-column="share" class="quiet number">
            {duration(payload.latency_ms)}
          </td>
          <Figures
            row={{
              ...payload,
              call_count: 1,
              stamped_cost_usd: payload.cost_usd,
              cost_usd: props.repriced ? (prices.get(id) ?? null) : payload.cost_usd,
            }}
            repriced={props.repriced}
          />
        </tr>
      ))}
      {read.next !== null && (
        <tr class="nested calls-foot">
          <td>
            <button type="button" class="button" onClick={() => void ask(read.next).catch(fail)}>
              More calls
            </button>
          </td>
          <td data-column="share" />
          <NoFigures repriced={props.repriced} />
        </tr>
      )}
    </>
  );
}

/** By the id of its event, what each call costs by the prices that were asked for; one that cannot be told is left out. */
function useRepriced(props: Parameters<typeof CallRows>[0], calls: readonly Call[]): ReadonlyMap<string, string> {
  const { client, failed } = useApi();
  const [prices, setPrices] = useState<ReadonlyMap<string, string>>(new Map());
  const { pricing } = props.answer.question;
  const shown = calls.map(({ id }) => id).join(' ');
  useEffect(() => {
    if (!props.repriced || calls.length === 0) return;
    const gone = new AbortController();
    // The server reckons: its report over the one millisecond in which the call ended.
    const ask = async ({ id, timestamp, session_id, payload: { model } }: Call) => {
      const window = { from: timestamp, to: new Date(Date.parse(timestamp) + 1).toISOString() };
      const of = { session: session_id, model, pricing, group_by: 'none' } as const;
      const { totals } = await client.getCost({ ...window, ...of }, { signal: gone.signal });
      return totals.call_count === 1 ? [[id, totals.cost_usd] as const] : [];
    };
    Promise.all(calls.map(ask)).then(
      (found) => setPrices(new Map(found.flat())),
      (reason) => gone.signal.aborted || failed(reason),
    );
    return () => gone.abort();
  }, [client, failed, shown, pricing, props.repriced]);
  return prices;
}
