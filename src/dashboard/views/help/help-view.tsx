// Help: the first steps, and the documents of this version of the server (17 §3).
import { useEffect, useRef } from 'preact/hooks';
import { useApi } from '#dashboard/data/api.ts';
import { usePolled } from '#dashboard/data/queries.ts';
import { LinkContext, Markdown } from '#dashboard/parts/markdown.tsx';
import { Failure, Skeleton } from '#dashboard/parts/panels.tsx';
import { formatPlace, type Place } from '#dashboard/shell/place.ts';
import { StartGuide } from './start-guide.tsx';

const DOCUMENTS = [
  { id: 'concepts', title: 'Concepts', about: 'sessions, workers, tiers, routing, caps' },
  { id: 'doors', title: 'Clients', about: 'Claude Code, Codex, MCP, ACP and plain HTTP' },
  { id: 'configuration', title: 'Configuration', about: 'every key, provider, model and routing rule' },
  { id: 'workers', title: 'Named workers', about: 'definitions, permissions, approvals' },
  { id: 'dashboard', title: 'Dashboard', about: 'what each view shows' },
  { id: 'http', title: 'HTTP interface', about: 'conventions and examples' },
  { id: 'client', title: 'Client for TypeScript', about: 'typed calls and streams' },
  { id: 'security', title: 'Security', about: 'what is protected, and what is not' },
  { id: 'operations', title: 'Operations', about: 'backup, upgrade, retention, metrics' },
  { id: 'cluster', title: 'Several nodes', about: 'PostgreSQL and NATS' },
  { id: 'replay', title: 'Replay', about: 'a recorded session as a test, without a key' },
  { id: 'benchmark', title: 'Benchmark', about: 'whether delegation pays for your work' },
] as const;
const NEVER_MS = 600_000;

export function HelpView({ place }: { readonly place: Place }) {
  const [name] = place.rest;
  const known = DOCUMENTS.find(({ id }) => id === name);
  if (known !== undefined) return <DocumentView key={known.id} id={known.id} title={known.title} />;
  return (
    <div class="view help-view">
      <header class="view-head">
        <h1>Help</h1>
      </header>
      <div class="view-body">
        <StartGuide />
        <section class="panel" aria-label="Documentation">
          <header>
            <h2>Documentation</h2>
          </header>
          <ul class="document-list">
            {DOCUMENTS.map(({ id, title, about }) => (
              <li key={id}>
                <a href={formatPlace('help', id)}>{title}</a> <span class="quiet">{about}</span>
              </li>
            ))}
            <li>
              <a href="docs">Reference of the HTTP interface</a>{' '}
              <span class="quiet">every operation and its fields</span>
            </li>
          </ul>
        </section>
      </div>
    </div>
  );
}

function DocumentView({ id, title }: { readonly id: string; readonly title: string }) {
  const { address } = useApi();
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => heading.current?.scrollIntoView(), []);
  const { data, error, reload } = usePolled((signal) => readDocument(address, id, signal), id, NEVER_MS);
  return (
    <div class="view help-view">
      <header class="view-head">
        <h1 ref={heading}>{title}</h1>
        <a class="quiet" href={formatPlace('help')}>
          All documents
        </a>
      </header>
      <div class="view-body document">
        {error !== null && <Failure error={error} title="The document could not be loaded" retry={reload} />}
        {data === null && error === null && <Skeleton rows={10} />}
        {data !== null && (
          <LinkContext.Provider value={resolveDocumentLink}>
            <Markdown text={data} />
          </LinkContext.Provider>
        )}
      </div>
    </div>
  );
}

async function readDocument(address: string, id: string, signal: AbortSignal): Promise<string> {
  const response = await fetch(`${address}/assets/documents/${id}.md`, { signal });
  if (!response.ok) throw new Error(`The server answered ${response.status}.`);
  // The title is that of the view.
  return (await response.text()).replace(/^# .*\n+/, '');
}

/** `workers.md#rules` is a view here; other relative links lead nowhere. */
function resolveDocumentLink(href: string): string | null {
  const name = /^([a-z]+)\.md(?:#.*)?$/.exec(href)?.[1];
  if (DOCUMENTS.some(({ id }) => id === name)) return formatPlace('help', name!);
  return null;
}
