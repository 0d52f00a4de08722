// Help: the first steps, and the documents of this version of the server (17 §3).
import { useEffect, useRef } from 'preact/hooks';
import { useApi } from '#dashboard/data/api.ts';
import { usePolled } from '#dashboard/data/queries.ts';
import { LinkContext, Markdown } from '#dashboard/parts/markdown.tsx';
import { Empty, Failure, Skeleton } from '#dashboard/parts/panels.tsx';
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
  {
    id: 'what-if',
    title: 'What if',
    about: 'what a task may cost, and what past work would have cost on other models',
  },
  { id: 'replay', title: 'Replay', about: 'a recorded session as a test, without a key' },
  { id: 'benchmark', title: 'Benchmark', about: 'whether delegation pays for your work' },
] as const;
const NEVER_MS = 600_000;

export function HelpView({ place }: { readonly place: Place }) {
  const [name, section] = place.rest;
  const known = DOCUMENTS.find(({ id }) => id === name);
  if (known !== undefined) return <DocumentView key={known.id} {...known} section={section ?? null} />;
  if (name !== undefined && name !== '') return <NoDocument name={name} />;
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

function NoDocument({ name }: { readonly name: string }) {
  return (
    <div class="view help-view">
      <header class="view-head">
        <h1>Help</h1>
      </header>
      <Empty icon="search" title="This page does not exist">
        <p>
          Help has no page “{name}”. <a href={formatPlace('help')}>All documents</a>
        </p>
      </Empty>
    </div>
  );
}

function DocumentView(props: { readonly id: string; readonly title: string; readonly section: string | null }) {
  const { id, title, section } = props;
  const { address } = useApi();
  const heading = useRef<HTMLHeadingElement>(null);
  const body = useRef<HTMLDivElement>(null);
  useEffect(() => {
    heading.current?.scrollIntoView();
    if (section !== null && body.current !== null) return showSection(body.current, section);
  }, [section]);
  const { data, error, reload } = usePolled((signal) => readDocument(address, id, signal), id, NEVER_MS);
  return (
    <div class="view help-view">
      <header class="view-head">
        <h1 ref={heading}>{title}</h1>
        <a class="quiet" href={formatPlace('help')}>
          All documents
        </a>
      </header>
      <div class="view-body document" ref={body}>
        {error !== null && <Failure error={error} title="The document could not be loaded" retry={reload} />}
        {data === null && error === null && <Skeleton rows={10} />}
        {data !== null && (
          <LinkContext.Provider value={(href) => resolveDocumentLink(id, href)}>
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

/** Scrolls to a heading once it is there: a long document is parsed beside the page. @returns what ends the wait */
function showSection(body: HTMLElement, section: string): () => void {
  const show = () => {
    const found = [...body.querySelectorAll('.heading')].find(({ textContent }) => toAnchor(textContent) === section);
    found?.scrollIntoView();
    if (found !== undefined) observer.disconnect();
  };
  const observer = new MutationObserver(show);
  observer.observe(body, { childList: true, subtree: true });
  show();
  return () => observer.disconnect();
}

/** As the links within the documents name a heading: `Stop and upgrade` is `stop-and-upgrade`. */
function toAnchor(heading: string): string {
  return heading
    .toLowerCase()
    .replace(/[^\w\- ]/g, '')
    .replaceAll(' ', '-');
}

/** `workers.md#rules` is a view here, and `#rules` one of the same document; other relative links lead nowhere. */
function resolveDocumentLink(from: string, href: string): string | null {
  const link = /^([a-z-]+(?=\.md))?(?:\.md)?(?:#(.+))?$/.exec(href);
  const name = link?.[1] ?? from;
  const section = link?.[2];
  if (link !== null && href !== '' && DOCUMENTS.some(({ id }) => id === name))
    return formatPlace('help', name, ...(section === undefined ? [] : [section]));
  return null;
}
