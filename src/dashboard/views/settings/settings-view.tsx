// What is in force, read only: the server, the routing policy, the price table (17 §3, 05 §3.5, 08 §8).
import type { ComponentChildren } from 'preact';
import type { MetisClient, Pricing, RoutingPolicy } from '#client/client.ts';
import { useApi, useMay } from '#dashboard/data/api.ts';
import { useOpenApprovals, usePolled } from '#dashboard/data/queries.ts';
import { emptyToNull, exactUsd, modelName } from '#dashboard/format/format.ts';
import { Badge, Time } from '#dashboard/parts/labels.tsx';
import { Failure, Skeleton } from '#dashboard/parts/panels.tsx';
import { type Column, Table } from '#dashboard/parts/table.tsx';
import { Configuration } from './configuration.tsx';

const EVERY_MS = 10_000;

export function SettingsView() {
  const { client } = useApi();
  const isWhole = useMay()('getSettings');
  const { data, error, reload } = usePolled((signal) => askSettings(client, isWhole, signal), 'settings', EVERY_MS);
  return (
    <div class="view settings-view">
      <header class="view-head">
        <h1>Settings</h1>
        <span class="quiet">
          {isWhole ? 'read only, with the place where each value is set' : 'read only; an admin sees all settings'}
        </span>
      </header>
      <div class="view-body settings">
        {error !== null && <Failure error={error} title="The settings could not be loaded" retry={reload} />}
        <Server />
        {data === null && error === null && <Skeleton rows={8} />}
        {data !== null && (
          <>
            {data.settings !== null && <Configuration settings={data.settings} />}
            <Routing policy={data.policy} />
            <Prices pricing={data.pricing} />
          </>
        )}
      </div>
    </div>
  );
}

/** The configuration is for admins; the policy and the prices are for all. */
async function askSettings(client: MetisClient, isWhole: boolean, signal: AbortSignal) {
  const [policy, pricing, settings] = await Promise.all([
    client.getRoutingPolicy({}, { signal }),
    client.getPricing({}, { signal }),
    isWhole ? client.getSettings({ signal }) : null,
  ]);
  return { policy, pricing, settings };
}

function Group(props: {
  readonly title: string;
  readonly note?: ComponentChildren;
  readonly children: ComponentChildren;
}) {
  return (
    <section class="panel">
      <header>
        <h2>{props.title}</h2>
        {props.note !== undefined && <span class="panel-more">{props.note}</span>}
      </header>
      {props.children}
    </section>
  );
}

function Facts({ facts }: { readonly facts: readonly (readonly [string, ComponentChildren])[] }) {
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value ?? <span class="quiet">none</span>}</dd>
        </div>
      ))}
    </dl>
  );
}

function Server() {
  const { data } = useOpenApprovals();
  if (data === null) return null;
  const { health } = data;
  return (
    <Group title="Server">
      <Facts
        facts={[
          ['Version', health.version],
          ['Started', <Time key="at" at={health.started_at} />],
          ['Address', location.origin],
          ['Open sessions', health.active_sessions],
          ['Open workers', health.active_workers],
          ['Running turns', health.active_turns],
        ]}
      />
    </Group>
  );
}

type Rule = RoutingPolicy['rules'][number];
const RULES: readonly Column<Rule>[] = [
  { id: 'name', title: 'Rule', cell: ({ name }) => name },
  { id: 'when', title: 'When', cell: ({ when }) => <code>{JSON.stringify(when)}</code> },
  { id: 'use', title: 'Use', cell: ({ use }) => use },
];

function Routing({ policy }: { readonly policy: RoutingPolicy }) {
  const { tiers, pattern } = policy;
  return (
    <Group title="Routing policy" note={<Validity valid={policy.valid} />}>
      {policy.errors?.map((error) => (
        <p key={error} class="panel-note field-error">
          {error}
          {policy.using_last_known_good && ' The server uses the last valid policy.'}
        </p>
      ))}
      <Facts
        facts={[
          ['Default', policy.global_default],
          ['Tier fast', tiers.fast],
          ['Tier balanced', tiers.balanced],
          ['Tier deep', tiers.deep],
          ['Version', policy.version === null ? 'no file' : <code key="hash">{policy.version.slice(0, 12)}</code>],
          ['Loaded', policy.loaded_at && <Time key="at" at={policy.loaded_at} />],
          ...Object.entries(pattern).map(([key, value]) => [`pattern.${key}`, String(value)] as const),
        ]}
      />
      {policy.rules.length === 0 && (
        <p class="panel-note quiet">
          No rules. Add rules to the file at <code>routing.global_path</code> or to a workspace's{' '}
          <code>.metis/routing.yaml</code>.
        </p>
      )}
      {policy.rules.length > 0 && (
        <div data-scrolls>
          <Table label="Rules" columns={RULES} rows={policy.rules} rowKey={({ name }) => name} />
        </div>
      )}
    </Group>
  );
}

function Validity({ valid }: { readonly valid: boolean }) {
  if (valid) return <Badge tone="ok">valid</Badge>;
  return <Badge tone="bad">invalid</Badge>;
}

type Rates = Pricing['table']['models'][string] & { readonly model: string };
const RATES: readonly Column<Rates>[] = [
  {
    id: 'model',
    title: 'Model',
    cell: ({ model, long_context }) => (
      <span title={model}>
        {modelName(model)}
        {long_context.map(({ above_prompt_tokens }) => (
          <span key={above_prompt_tokens} class="quiet">
            {' '}
            · higher above {above_prompt_tokens}
          </span>
        ))}
      </span>
    ),
  },
  { id: 'in', title: 'Input', numeric: true, cell: (rates) => exactUsd(rates.input_per_mtok_usd) },
  { id: 'out', title: 'Output', numeric: true, cell: (rates) => exactUsd(rates.output_per_mtok_usd) },
  { id: 'read', title: 'Cache read', numeric: true, cell: (rates) => exactUsd(rates.cached_read_per_mtok_usd) },
  { id: 'write', title: 'Cache write', numeric: true, cell: (rates) => exactUsd(rates.cache_write_per_mtok_usd) },
  {
    id: 'write1h',
    title: 'Cache write, 1 h',
    numeric: true,
    cell: (rates) => exactUsd(rates.cache_write_1h_per_mtok_usd),
  },
];

function Prices({ pricing }: { readonly pricing: Pricing }) {
  const rates = Object.entries(pricing.table.models).map(([model, of]) => ({ model, ...of }));
  return (
    <Group title="Prices" note={<span class="quiet">US dollars per million tokens</span>}>
      <Facts
        facts={[
          ['Version', pricing.active_version],
          ['Source', emptyToNull(pricing.table.source)],
          ['Content hash', <code key="hash">{pricing.table.content_hash.slice(0, 12)}</code>],
          ['Known versions', pricing.versions.length],
        ]}
      />
      <div data-scrolls>
        <Table label="Prices" columns={RATES} rows={rates} rowKey={({ model }) => model} />
      </div>
    </Group>
  );
}
