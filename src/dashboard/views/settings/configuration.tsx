// The configuration in force with where each value is set, MCP servers with their tools and faults, and nodes (15 §1).
import { useState } from 'preact/hooks';
import type { NodeList, SettingsReport, ToolList } from '#client/client.ts';
import { useApi } from '#dashboard/data/api.ts';
import { usePolled, useWorkspacePaths } from '#dashboard/data/queries.ts';
import { formatCount } from '#dashboard/format/format.ts';
import { Badge } from '#dashboard/parts/labels.tsx';
import { Failure } from '#dashboard/parts/panels.tsx';
import { type Column, Table } from '#dashboard/parts/table.tsx';
import { formatPlace } from '#dashboard/shell/place.ts';
import { Keys } from '../help/start-guide.tsx';

const EVERY_MS = 10_000;
type Setting = SettingsReport['settings'][number];

/** What people look for first: who is asked before a tool runs, what may be spent, what the server can reach. */
const GROUPS = [
  { title: 'Approvals', pattern: /^(tool_confirmation\.|workers\.allow_approve_all$)/ },
  { title: 'Budgets', pattern: /^(budgets\.|delegation\.worker_max_cost_usd$)/ },
  { title: 'Server and data', pattern: /^(server|storage|database|trace)\./ },
] as const;
/** In the panel of the MCP servers. */
const MCP_SERVERS = 'mcp_servers';

const SETTINGS: readonly Column<Setting>[] = [
  { id: 'key', title: 'Setting', cell: ({ key }) => <code>{key}</code> },
  { id: 'value', title: 'Value', cell: ({ value }) => <Value value={value} /> },
  { id: 'source', title: 'Set in', cell: ({ source }) => <Source source={source} /> },
];

/** Where a person changes it: a file with its line, a variable, a flag; the default stands back. */
function Source({ source }: { readonly source: string }) {
  if (source === 'default') return <span class="quiet">default</span>;
  return <span class="setting-source">{source}</span>;
}

function Value({ value }: { readonly value: unknown }) {
  if (value === null) return <span class="quiet">not set</span>;
  if (typeof value === 'string') return <code class="setting-value">{value}</code>;
  if (typeof value === 'object' && Object.keys(value).length === 0) return <span class="quiet">none</span>;
  return <code class="setting-value">{JSON.stringify(value)}</code>;
}

function SettingsTable({ label, rows }: { readonly label: string; readonly rows: readonly Setting[] }) {
  return (
    <div class="settings-table">
      <Table label={label} columns={SETTINGS} rows={rows} rowKey={({ key }) => key} />
    </div>
  );
}

export function Configuration({ settings }: { readonly settings: SettingsReport }) {
  const find = (pattern: RegExp) => settings.settings.filter(({ key }) => pattern.test(key));
  return (
    <>
      <section class="panel" aria-label="Provider keys">
        <header>
          <h2>Provider keys</h2>
        </header>
        <Keys settings={settings} />
      </section>
      <section class="panel" aria-label="Where settings are">
        <header>
          <h2>Where settings are</h2>
        </header>
        <dl class="facts wide">
          <div>
            <dt>Data folder</dt>
            <dd>{settings.data_dir}</dd>
          </div>
          <div>
            <dt>Database</dt>
            <dd>{settings.database}</dd>
          </div>
          <div>
            <dt>Files that were read</dt>
            <dd>{settings.files.join(', ') || 'none'}</dd>
          </div>
        </dl>
        <p class="panel-note quiet">
          To change a value, edit where it is set and restart the server. To replace a default, write its key to{' '}
          <code class="setting-value">{settings.data_dir}/server.yaml</code>.{' '}
          <a href={formatPlace('help', 'configuration')}>What each setting does</a>
        </p>
      </section>
      {GROUPS.map(({ title, pattern }) => (
        <section key={title} class="panel">
          <header>
            <h2>{title}</h2>
          </header>
          <SettingsTable label={title} rows={find(pattern)} />
        </section>
      ))}
      <OtherSettings settings={settings} />
      <McpServers settings={settings} />
      <Nodes />
    </>
  );
}

/** Those that are set somewhere; the defaults on request. */
function OtherSettings({ settings }: { readonly settings: SettingsReport }) {
  const [all, setAll] = useState(false);
  const others = settings.settings.filter(
    ({ key }) => key !== MCP_SERVERS && GROUPS.every(({ pattern }) => !pattern.test(key)),
  );
  const rows = others.filter(({ source }) => all || source !== 'default');
  const defaults = others.filter(({ source }) => source === 'default');
  return (
    <section class="panel">
      <header>
        <h2>Other settings</h2>
        <span class="panel-more">
          <button type="button" class="button" aria-pressed={all} onClick={() => setAll(!all)}>
            {all ? 'Hide defaults' : `Show ${formatCount(defaults.length, 'default')}`}
          </button>
        </span>
      </header>
      {rows.length === 0 && (
        <p class="panel-note quiet">Every other setting has its default. Settings that you set appear here.</p>
      )}
      {rows.length > 0 && <SettingsTable label="Other settings" rows={rows} />}
    </section>
  );
}

/** Tools of MCP servers bear their server's name: `mcp__notes__find`. */
function listToolNames({ tools }: ToolList, server: string): readonly string[] {
  const prefix = `mcp__${server}__`;
  return tools.filter(({ name }) => name.startsWith(prefix)).map(({ name }) => name.slice(prefix.length));
}

/** Those of the configuration, and those of a workspace's `.mcp.json` that offer tools or have faults. */
function listServerNames(configured: unknown, list: ToolList | null): readonly string[] {
  const names = new Set(Object.keys((configured ?? {}) as object));
  for (const { name } of list?.tools ?? []) {
    const server = /^mcp__(.+?)__/.exec(name)?.[1];
    if (server !== undefined) names.add(server);
  }
  for (const { mcp_server } of list?.problems ?? []) if (mcp_server !== null) names.add(mcp_server);
  return [...names];
}

function McpServers({ settings }: { readonly settings: SettingsReport }) {
  const { client } = useApi();
  const { data: workspaces } = useWorkspacePaths();
  const workspace = workspaces?.[0];
  const { data, error } = usePolled(
    async (signal) => (workspace === undefined ? null : client.listTools({ workspace_path: workspace }, { signal })),
    `tools ${workspace}`,
    EVERY_MS,
  );
  const configured = settings.settings.find(({ key }) => key === MCP_SERVERS);
  const names = listServerNames(configured?.value, data);
  const general = data?.problems.filter(({ mcp_server }) => mcp_server === null) ?? [];
  return (
    <section class="panel" aria-label="MCP servers">
      <header>
        <h2>MCP servers</h2>
        {configured !== undefined && names.length > 0 && (
          <span class="panel-more">
            set in <Source source={configured.source} />
          </span>
        )}
      </header>
      {error !== null && <Failure error={error} title="The tools could not be listed" />}
      {names.length === 0 && (
        <p class="panel-note quiet">
          No MCP server. Add one under <code>mcp_servers</code>; it appears here with its tools and faults.
        </p>
      )}
      <ul class="key-list">
        {general.map(({ message }) => (
          <li key={message}>
            <Badge tone="bad">fault</Badge> <code>.mcp.json</code> {message}
          </li>
        ))}
        {names.map((name) => (
          <McpServer key={name} name={name} list={data} hasWorkspace={workspace !== undefined} />
        ))}
      </ul>
    </section>
  );
}

function McpServer(props: {
  readonly name: string;
  readonly list: ToolList | null;
  /** Servers are started for a workspace; without any there is nothing to list. */
  readonly hasWorkspace: boolean;
}) {
  const { name, list } = props;
  const tools = list === null ? [] : listToolNames(list, name);
  const faults = list?.problems.filter(({ mcp_server }) => mcp_server === name) ?? [];
  return (
    <li>
      <strong>{name}</strong>{' '}
      {tools.length > 0 && <span class="quiet">{`${formatCount(tools.length, 'tool')}: ${tools.join(', ')}`}</span>}
      {list !== null && tools.length === 0 && faults.length === 0 && <span class="quiet">no tools</span>}
      {!props.hasWorkspace && <span class="quiet">starts with the first session; its tools appear then</span>}
      {faults.map(({ message }) => (
        <p key={message}>
          <Badge tone="bad">fault</Badge> {message}
        </p>
      ))}
    </li>
  );
}

const NODES: readonly Column<NodeList[number]>[] = [
  { id: 'name', title: 'Node', cell: ({ name }) => name },
  { id: 'url', title: 'Address', cell: ({ url }) => url },
  { id: 'version', title: 'Version', cell: ({ version }) => version },
  { id: 'turns', title: 'Turns', numeric: true, cell: ({ turns }) => turns },
  { id: 'state', title: 'State', cell: (node) => <NodeState node={node} /> },
];

function NodeState({ node }: { readonly node: NodeList[number] }) {
  if (!node.reachable) return <Badge tone="bad">not reachable</Badge>;
  if (!node.config_matches) return <Badge tone="warn">other configuration{describeKeys(node.config_differs)}</Badge>;
  if (node.draining) return <Badge>draining</Badge>;
  return <Badge tone="ok">active</Badge>;
}

const SHOWN_KEYS = 3;

/** Keys that differ, for a badge: `: turn.max_llm_calls, prices and 2 more`. */
function describeKeys(keys: readonly string[]): string {
  if (keys.length === 0) return '';
  const more = keys.length > SHOWN_KEYS ? ` and ${keys.length - SHOWN_KEYS} more` : '';
  return `: ${keys.slice(0, SHOWN_KEYS).join(', ')}${more}`;
}

function Nodes() {
  const { client } = useApi();
  const { data, error } = usePolled((signal) => client.listNodes({ signal }), 'nodes', EVERY_MS);
  return (
    <section class="panel" aria-label="Nodes">
      <header>
        <h2>Nodes</h2>
      </header>
      {error !== null && <Failure error={error} title="The nodes could not be listed" />}
      {data !== null && (
        <div data-scrolls>
          <Table label="Active nodes" columns={NODES} rows={data} rowKey={({ id }) => id} />
        </div>
      )}
    </section>
  );
}
