// The first cell of a row of the cost table: the group's key, its name and its link.
import type { ComponentChildren } from 'preact';
import type { CostRow, Session } from '#client/client.ts';
import { getTitle } from '#dashboard/data/queries.ts';
import { modelName } from '#dashboard/format/format.ts';
import { SOURCE_NAMES } from '#dashboard/parts/labels.tsx';
import { type CostQuestion, formatCostPlace } from './cost-question.ts';

/** What the calls without a caller are called. */
export const NO_KEY = 'Without a key';

/** What the calls without an owner are called. */
export const NO_OWNER = 'No owner';
/** The key of the one row of all private sessions of others (23 §1). */
export const PRIVATE = 'private';
export const PRIVATE_NAME = 'Private sessions of others';

/** Names that the API does not return with the figures. */
export interface Names {
  readonly sessions: ReadonlyMap<string, Session | null>;
  /** By hash of the path. */
  readonly workspaces: ReadonlyMap<string, string>;
}

/** The key of a row as the report gives it; null: the calls that have none. */
export function getRowKey(question: CostQuestion, row: CostRow): string | null {
  switch (question.group) {
    case 'root_session':
      return row.root_session_id ?? null;
    case 'model':
      return row.model ?? null;
    case 'delegation_tier':
      return row.delegation_tier ?? null;
    case 'worker_name':
      return row.worker_name ?? null;
    case 'workspace':
      return row.workspace_hash ?? null;
    case 'door':
      return row.door ?? null;
    case 'caller':
      // The report's null is the filter's ''.
      return row.caller ?? '';
    case 'owner':
      return row.owner?.name ?? '';
    case 'effort':
      return row.effort ?? null;
    case 'day':
      return row.bucket ?? null;
  }
}

/** For people. */
export function getRowName(question: CostQuestion, key: string | null, names: Names): string {
  if (key === null) {
    if (question.group === 'delegation_tier') return 'No tier';
    if (question.group === 'effort') return 'No effort';
    return 'No named worker';
  }
  switch (question.group) {
    case 'root_session':
      if (key === PRIVATE) return PRIVATE_NAME;
      return sessionName(names.sessions.get(key));
    case 'model':
      return modelName(key);
    case 'workspace':
      if (key === PRIVATE) return PRIVATE_NAME;
      return names.workspaces.get(key) ?? `Workspace ${key.slice(0, 8)}`;
    case 'door':
      return SOURCE_NAMES[key as Session['door']] ?? key;
    case 'caller':
      if (key === '') return NO_KEY;
      return key;
    case 'owner':
      if (key === '') return NO_OWNER;
      return key;
    default:
      return key;
  }
}

export function sessionName(session: Session | null | undefined): string {
  if (session === null) return 'Purged session';
  if (session === undefined) return '…';
  return getTitle(session);
}

/** A row leads to the trees behind it, by way of the filter that it is. */
export function RowLink(props: {
  readonly question: CostQuestion;
  readonly rowKey: string | null;
  readonly children: ComponentChildren;
}) {
  const { question, rowKey } = props;
  const narrowed = rowKey === null ? null : narrow(question, rowKey);
  if (narrowed === null) return <>{props.children}</>;
  return (
    <a class="plain-link" href={formatCostPlace({ ...narrowed, group: 'root_session' })} title={rowKey ?? undefined}>
      {props.children}
    </a>
  );
}

export function narrow(question: CostQuestion, key: string): CostQuestion | null {
  switch (question.group) {
    case 'model':
      return { ...question, model: key };
    case 'delegation_tier':
      return { ...question, tier: key };
    case 'worker_name':
      return { ...question, worker: key };
    case 'workspace':
      return key === PRIVATE ? null : { ...question, workspace: key };
    case 'door':
      return { ...question, door: key };
    case 'caller':
      return { ...question, caller: key };
    case 'owner':
      return { ...question, owner: key };
    case 'day':
      return { ...question, range: 'custom', from: key, to: key };
    case 'effort':
    case 'root_session':
      return null;
  }
}
