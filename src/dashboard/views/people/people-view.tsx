// The tokens of people, and what was done with their rights: for admins (23 §2, §4).
import { useEffect, useState } from 'preact/hooks';
import type { AuditList, Token } from '#client/client.ts';
import { useApi, useOwnToken } from '#dashboard/data/api.ts';
import { useNow, usePolled } from '#dashboard/data/queries.ts';
import { useRequest } from '#dashboard/data/use-request.ts';
import { formatCount } from '#dashboard/format/format.ts';
import { Badge, Icon, Money, NoValue, Time } from '#dashboard/parts/labels.tsx';
import { ConfirmDialog, Empty, Failure, RequestError, Skeleton } from '#dashboard/parts/panels.tsx';
import { type Column, Table } from '#dashboard/parts/table.tsx';
import { formatPlace, formatPlaceWithQuery, type Place } from '#dashboard/shell/place.ts';
import { Limit } from '../cost/own-money.tsx';
import { NewToken } from './new-token.tsx';

const EVERY_MS = 10_000;
type AuditEntry = AuditList['entries'][number];
const TABS = [
  { id: '', title: 'Tokens', place: formatPlace('people') },
  { id: 'audit', title: 'Audit', place: formatPlace('people', 'audit') },
] as const;

export function PeopleView({ place }: { readonly place: Place }) {
  const [tab = ''] = place.rest;
  return (
    <div class="view people-view">
      <header class="view-head">
        <h1>People</h1>
      </header>
      <nav class="tabs" aria-label="Parts of this page">
        {TABS.map(({ id, title, place: address }) => (
          <a key={id} href={address} aria-current={id === tab ? 'page' : undefined}>
            {title}
          </a>
        ))}
      </nav>
      <div class="view-body">{tab === 'audit' ? <Audit /> : <Tokens />}</div>
    </div>
  );
}

// Tokens: those that can be used first, revoked ones when they are asked for.

function Tokens() {
  const { client } = useApi();
  const { data, error, reload } = usePolled((signal) => client.listTokens({ signal }), 'tokens', EVERY_MS);
  const [adding, setAdding] = useState(false);
  const [revoking, setRevoking] = useState<Token | null>(null);
  const [isWhole, setWhole] = useState(false);
  const tokens = data?.tokens ?? [];
  const revoked = tokens.filter(({ revoked_at }) => revoked_at !== null);
  const usable = tokens.filter(({ revoked_at }) => revoked_at === null);
  return (
    <section class="panel" aria-label="Tokens">
      <header>
        <h2>Tokens</h2>
        <div class="panel-more">
          <button type="button" class="button primary" onClick={() => setAdding(true)}>
            <Icon name="plus" />
            New token
          </button>
        </div>
      </header>
      {error !== null && <Failure error={error} title="The tokens could not be loaded" retry={reload} />}
      {data === null && error === null && <Skeleton rows={4} />}
      {data !== null && (
        <div data-scrolls>
          <Table
            label="All tokens"
            columns={listColumns(setRevoking)}
            rows={isWhole ? [...usable, ...revoked] : usable}
            rowKey={({ id }) => id}
          />
        </div>
      )}
      {revoked.length > 0 && !isWhole && (
        <p class="panel-foot">
          <button type="button" class="button ghost" onClick={() => setWhole(true)}>
            Show {formatCount(revoked.length, 'revoked token')}
          </button>
        </p>
      )}
      {adding && (
        <NewToken
          onClose={() => {
            setAdding(false);
            reload();
          }}
        />
      )}
      {revoking !== null && (
        <Revoke
          token={revoking}
          onClose={() => {
            setRevoking(null);
            reload();
          }}
        />
      )}
    </section>
  );
}

function listColumns(onRevoke: (token: Token) => void): readonly Column<Token>[] {
  return [
    {
      id: 'name',
      title: 'Name',
      cell: (token) => (
        <>
          {token.name} <TokenState token={token} />
        </>
      ),
    },
    { id: 'role', title: 'Role', cell: ({ role }) => role },
    { id: 'today', title: 'Today', numeric: true, cell: ({ spent_today_usd }) => <Money usd={spent_today_usd} /> },
    {
      id: 'daily',
      title: 'Daily limit',
      cell: ({ spent_today_usd, daily_usd }) => <Limit spent={spent_today_usd} limit={daily_usd} />,
    },
    {
      id: 'month',
      title: 'This month',
      numeric: true,
      cell: ({ spent_this_month_usd }) => <Money usd={spent_this_month_usd} />,
    },
    {
      id: 'monthly',
      title: 'Monthly limit',
      cell: ({ spent_this_month_usd, monthly_usd }) => <Limit spent={spent_this_month_usd} limit={monthly_usd} />,
    },
    {
      id: 'workspaces',
      title: 'Workspaces',
      cell: ({ workspaces }) => {
        if (workspaces === null) return <span class="quiet">all</span>;
        return <span title={workspaces.join('\n')}>{formatCount(workspaces.length, 'folder')}</span>;
      },
    },
    {
      id: 'sessions',
      title: 'Open sessions',
      numeric: true,
      cell: ({ name, open_sessions }) => (
        <a href={formatPlaceWithQuery('sessions', { owner: name })}>{open_sessions}</a>
      ),
    },
    {
      id: 'expires',
      title: 'Expires',
      numeric: true,
      cell: ({ expires_at }) => (expires_at === null ? <span class="quiet">never</span> : <Time at={expires_at} />),
    },
    {
      id: 'revoke',
      title: 'Revocation',
      numeric: true,
      cell: (token) => {
        if (token.origin === 'file') return <span class="quiet">in the configuration</span>;
        if (token.revoked_at !== null) return <Time at={token.revoked_at} />;
        return (
          <button type="button" class="button danger" onClick={() => onRevoke(token)}>
            Revoke<span class="visually-hidden"> {token.name}</span>
          </button>
        );
      },
    },
  ];
}

function TokenState({ token: { id, revoked_at, expires_at } }: { readonly token: Token }) {
  const own = useOwnToken();
  const now = useNow();
  if (revoked_at !== null) return <Badge tone="bad">revoked</Badge>;
  if (expires_at !== null && Date.parse(expires_at) <= now) return <Badge tone="warn">expired</Badge>;
  if (own.token?.id === id) return <Badge>you</Badge>;
  return null;
}

function Revoke({ token, onClose }: { readonly token: Token; readonly onClose: () => void }) {
  const { client } = useApi();
  const own = useOwnToken();
  const effect = `The server refuses the token from now on and closes its streams. Its running turns go on. The name ${token.name} is not given out again.`;
  const isOwn = own.token?.id === token.id;
  return (
    <ConfirmDialog
      title={`Revoke: ${token.name}`}
      word="Revoke"
      text={isOwn ? `${effect} It is your own token: you will have to sign in with another one.` : effect}
      act={() => client.revokeToken(token.id)}
      onClose={onClose}
    />
  );
}

// The audit, newest first; older entries on demand.

const PAGE = 50;

function Audit() {
  const { client } = useApi();
  const { data, error, reload } = usePolled(
    (signal) => client.listAudit({ limit: PAGE }, { signal }),
    'audit',
    EVERY_MS,
  );
  const [known, setKnown] = useState<ReadonlyMap<string, AuditEntry>>(new Map());
  /** Where the page behind the oldest entry begins; undefined = not asked yet. */
  const [next, setNext] = useState<string | null>();
  const older = useRequest();
  const merge = (entries: readonly AuditEntry[]) =>
    setKnown((all) => new Map([...all, ...entries.map((entry) => [entry.id, entry] as const)]));
  useEffect(() => {
    if (data === null) return;
    merge(data.entries);
    setNext((last) => (last === undefined ? data.next_cursor : last));
  }, [data]);
  const loadOlder = async () => {
    const page = await client.listAudit({ limit: PAGE, cursor: next ?? undefined });
    merge(page.entries);
    setNext(page.next_cursor);
  };
  const entries = [...known.values()].sort((a, b) => (a.id < b.id ? 1 : -1));
  return (
    <section class="panel" aria-label="Audit">
      <header>
        <h2>Audit</h2>
        <span class="panel-more quiet">what was done with the rights of tokens</span>
      </header>
      {error !== null && <Failure error={error} title="The audit could not be loaded" retry={reload} />}
      {data === null && error === null && <Skeleton rows={8} />}
      {data !== null && data.entries.length === 0 && (
        <Empty icon="people" title="No entries yet">
          <p>Refused logins, tokens, limits, approvals and changes of workers and sessions appear here.</p>
        </Empty>
      )}
      {entries.length > 0 && (
        <div data-scrolls>
          <Table label="Entries of the audit" columns={AUDIT_COLUMNS} rows={entries} rowKey={({ id }) => id} />
        </div>
      )}
      <RequestError error={older.error} />
      {next != null && (
        <p class="panel-foot">
          <button type="button" class="button" disabled={older.busy} onClick={() => void older.send(loadOlder)}>
            Show older entries
          </button>
        </p>
      )}
    </section>
  );
}

const AUDIT_COLUMNS: readonly Column<AuditEntry>[] = [
  { id: 'at', title: 'When', cell: ({ at }) => <Time at={at} /> },
  { id: 'actor', title: 'Who', cell: ({ actor }) => actor?.name ?? <NoValue /> },
  { id: 'action', title: 'What', cell: ({ action }) => <code>{action}</code> },
  { id: 'subject', title: 'On what', cell: ({ subject }) => <Subject subject={subject} /> },
  { id: 'details', title: 'Details', cell: ({ details }) => <Details details={details} /> },
];

function Subject({ subject }: { readonly subject: string | null }) {
  if (subject === null) return <NoValue />;
  if (!subject.startsWith('sess_')) return <>{subject}</>;
  return <a href={formatPlace('sessions', subject)}>{subject}</a>;
}

function Details({ details }: { readonly details: AuditEntry['details'] }) {
  const entries = Object.entries(details);
  if (entries.length === 0) return <NoValue />;
  return <span class="quiet">{entries.map(([name, value]) => `${name}: ${formatValue(value)}`).join(', ')}</span>;
}

function formatValue(value: unknown): string {
  if (typeof value === 'string') return value;
  return JSON.stringify(value);
}
