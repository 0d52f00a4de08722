// Spend by the chosen grouping; a tree unfolds into its sessions, and each of them into its calls.
import { Fragment } from 'preact';
import { useState } from 'preact/hooks';
import type { CostRow, Session } from '#client/client.ts';
import { baseName, computeShare } from '#dashboard/format/format.ts';
import { isScripted, isSessionSimulated, Simulated } from '#dashboard/parts/labels.tsx';
import { Unfold } from '#dashboard/parts/panels.tsx';
import { formatPlace } from '#dashboard/shell/place.ts';
import { FigureHeads, Figures } from './cost-figures.tsx';
import type { CostAnswer } from './cost-question.ts';
import { getRowKey, getRowName, type Names, PRIVATE, RowLink } from './group-rows.tsx';
import { TreeRows } from './tree-rows.tsx';

// What a row of each grouping is called, and where it leads.

export function CostTable(props: { readonly answer: CostAnswer; readonly names: Names; readonly title: string }) {
  const { question, groups } = props.answer;
  const repriced = groups.pricing_mode === 'repriced';
  const trees = question.group === 'root_session';
  const mostExpensive = groups.data.reduce(
    (most, row) => (computeShare(row.cost_usd, most) >= 1 ? row.cost_usd : most),
    '0',
  );
  return (
    <section class="table-scroll" aria-label={props.title} tabIndex={0}>
      <table class="table cost-table">
        <thead>
          <tr>
            <th scope="col">{props.title}</th>
            <th scope="col" data-column="share">
              <span class="hidden">Planner and workers</span>
            </th>
            <FigureHeads repriced={repriced} />
          </tr>
        </thead>
        {groups.data.map((row) => (
          <Group
            key={getRowKey(question, row) ?? ''}
            {...props}
            row={row}
            repriced={repriced}
            unfolds={trees}
            highestCost={mostExpensive}
          />
        ))}
        <tfoot>
          <tr>
            <th scope="row">Total</th>
            <td data-column="share" />
            <Figures row={groups.totals} repriced={repriced} />
          </tr>
        </tfoot>
      </table>
    </section>
  );
}

function Group(props: {
  readonly answer: CostAnswer;
  readonly names: Names;
  readonly row: CostRow;
  readonly repriced: boolean;
  readonly unfolds: boolean;
  readonly highestCost: string;
}) {
  const { answer, row, repriced } = props;
  const [open, setOpen] = useState(false);
  const key = getRowKey(answer.question, row);
  const name = getRowName(answer.question, key, props.names);
  const unfolds = props.unfolds && key !== PRIVATE;
  return (
    <tbody>
      <tr>
        <th scope="row">
          <span class="nested-name">
            {unfolds && <Unfold name={name} open={open} onToggle={() => setOpen(!open)} />}
            {!unfolds && (
              <RowLink question={answer.question} rowKey={key}>
                {name}
              </RowLink>
            )}
            {isRowSimulated(answer.question, key, props.names) && <Simulated />}
          </span>
          {unfolds && <SessionLink session={props.names.sessions.get(key ?? '')} />}
        </th>
        <td data-column="share">
          <ShareBar row={row} highestCost={props.highestCost} />
        </td>
        <Figures row={row} repriced={repriced} />
      </tr>
      {open && key !== null && <TreeRows answer={answer} treeId={key} calls={row.call_count} repriced={repriced} />}
    </tbody>
  );
}

/** Whether a script answered calls of the row; days, tiers and the like may have both. */
function isRowSimulated({ group }: CostAnswer['question'], key: string | null, { sessions }: Names): boolean {
  if (group === 'model') return isScripted(key);
  return group === 'root_session' && isSessionSimulated(sessions.get(key ?? ''));
}

/** Leads from the money to its cause: when and where the session ran. */
function SessionLink({ session }: { readonly session: Session | null | undefined }) {
  if (session === null || session === undefined) return null;
  const { id, created_at, workspace_path } = session;
  return (
    <a class="sub session-link" href={formatPlace('sessions', id)} title={`${workspace_path} ${id}`}>
      {created_at.slice(0, 10)} · {baseName(workspace_path)} · {id}
    </a>
  );
}

/** Long as its cost relative to the most expensive row, in the colours of who spent it where that is known. */
function ShareBar({ row, highestCost }: { readonly row: CostRow; readonly highestCost: string }) {
  return (
    <span class="share-bar" aria-hidden="true">
      {splitCost(row).map(({ kind, usd }) => (
        <Fragment key={kind}>
          {usd !== '0' && (
            <span class={`share-part ${kind}`} style={{ width: `${computeShare(usd, highestCost) * 100}%` }} />
          )}
        </Fragment>
      ))}
    </span>
  );
}

function splitCost(row: CostRow) {
  const { planner_cost_usd, worker_cost_usd } = row;
  if (planner_cost_usd === undefined || worker_cost_usd === undefined) return [{ kind: 'whole', usd: row.cost_usd }];
  return [
    { kind: 'planner', usd: planner_cost_usd },
    { kind: 'workers', usd: worker_cost_usd },
  ];
}
