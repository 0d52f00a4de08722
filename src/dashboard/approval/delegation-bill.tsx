// The bill of the delegations of one message: a row each, the sums, and a change of all of them (21 §1).
import type { Confirmation } from '#client/client.ts';
import { exactUsd, formatCount, modelName } from '../format/format.ts';
import { NoValue } from '../parts/labels.tsx';

const TIERS = ['fast', 'balanced', 'deep'] as const;
const EFFORTS = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'] as const;

interface Row {
  readonly tool_use_id: string;
  readonly worker: string | null;
  readonly tier: string | null;
  readonly model: string;
  readonly effort: string | null;
  readonly p50_usd: string | null;
  readonly p90_usd: string | null;
  readonly ceiling_usd: string | null;
}

/** The change that the answer requests; empty fields change nothing. */
export interface BillChange {
  readonly tier: string;
  readonly effort: string;
  readonly first: string;
}
export const NO_CHANGE: BillChange = { tier: '', effort: '', first: '' };

/** Null where nothing is changed. */
export function readBillChange({ tier, effort, first }: BillChange): Record<string, unknown> | null {
  const edit = {
    ...(tier !== '' && { tier }),
    ...(effort !== '' && { effort }),
    ...(first !== '' && { first: Number(first) }),
  };
  if (Object.keys(edit).length === 0) return null;
  return edit;
}

/** A column that no row has a figure for is left out. */
export function BillTable({ confirmation }: { readonly confirmation: Confirmation }) {
  const rows = (confirmation.payload?.rows ?? []) as readonly Row[];
  const formatTotal = (name: string) => exactUsd(String(confirmation.payload?.[name] ?? '0'));
  const unknown = rows.filter(({ p90_usd }) => p90_usd === null).length;
  const columns = COLUMNS.filter(({ field }) => rows.some((row) => row[field] !== null));
  const summed = columns.flatMap(({ sum }) => sum ?? []);
  return (
    <section class="table-scroll" aria-label="Delegations" data-scrolls tabIndex={0}>
      <table class="table bill-table">
        <thead>
          <tr>
            <th scope="col">Worker</th>
            <th scope="col">Model</th>
            {columns.map(({ field, title }) => (
              <th key={field} scope="col" class="numeric">
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.tool_use_id}>
              <td>{row.worker ?? row.tier ?? 'worker'}</td>
              <td>
                {modelName(row.model)}
                {row.effort !== null && <span class="quiet"> {row.effort}</span>}
              </td>
              {columns.map(({ field }) => (
                <Amount key={field} usd={row[field]} />
              ))}
            </tr>
          ))}
        </tbody>
        <tfoot>
          <tr>
            <th scope="row" colSpan={2 + columns.length - summed.length}>
              Together up to {formatTotal('compared_usd')}
            </th>
            {summed.map((name) => (
              <td key={name} class="numeric number">
                {formatTotal(name)}
              </td>
            ))}
          </tr>
        </tfoot>
      </table>
      {unknown > 0 && (
        <p class="quiet">{formatCount(unknown, 'worker')} without a history, with the first call alone.</p>
      )}
    </section>
  );
}

const COLUMNS = [
  { field: 'p50_usd', title: 'p50', sum: null },
  { field: 'p90_usd', title: 'p90', sum: 'p90_usd' },
  { field: 'ceiling_usd', title: 'First call at most', sum: 'ceiling_usd' },
] as const;

function Amount({ usd }: { readonly usd: string | null }) {
  return <td class="numeric number">{usd === null ? <NoValue /> : exactUsd(usd)}</td>;
}

export function BillChoice(props: {
  readonly count: number;
  readonly change: BillChange;
  readonly onChange: (change: BillChange) => void;
}) {
  const { change, onChange } = props;
  return (
    <div class="filters">
      <Choice
        label="Tier for all"
        values={TIERS}
        value={change.tier}
        onChoose={(tier) => onChange({ ...change, tier })}
      />
      <Choice
        label="Effort for all"
        values={EFFORTS}
        value={change.effort}
        onChoose={(effort) => onChange({ ...change, effort })}
      />
      <Choice
        label="Start only the first"
        without="Start: all"
        values={Array.from({ length: Math.max(0, props.count - 1) }, (_, index) => String(index + 1))}
        value={change.first}
        onChoose={(first) => onChange({ ...change, first })}
      />
    </div>
  );
}

function Choice(props: {
  readonly label: string;
  /** The text of no choice. */
  readonly without?: string;
  readonly values: readonly string[];
  readonly value: string;
  readonly onChoose: (value: string) => void;
}) {
  return (
    <select
      class="approval-scope"
      aria-label={props.label}
      value={props.value}
      onChange={(event) => props.onChoose(event.currentTarget.value)}
    >
      <option value="">{props.without ?? `${props.label}: as requested`}</option>
      {props.values.map((value) => (
        <option key={value} value={value}>
          {props.label}: {value}
        </option>
      ))}
    </select>
  );
}
