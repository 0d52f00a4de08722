// The API reference as one HTML page, made from the OpenAPI document: no script, and no resource from another address (18 §2).
import { createHash } from 'node:crypto';
import { inlineResponses, openApiDocument } from '../openapi.ts';
import { buildExample, fieldRow, fieldTable, Html, html, type Parameter, type Schema } from './schema-fields.ts';

/** One column with the list of operations beside it, in light and in dark. */
export const STYLE = `
:root {
  color-scheme: light dark;
  --ink: light-dark(#1d2129, #e4e6ea); --soft: light-dark(#59616e, #a2a9b5); --line: light-dark(#d9dde3, #353b45);
  --paper: light-dark(#ffffff, #15181d); --panel: light-dark(#f5f6f8, #1d2127); --link: light-dark(#0b5bb5, #7db8ff);
  --get: light-dark(#0b6e4f, #63d3a6); --post: light-dark(#8a4b00, #f0b35c); --patch: light-dark(#6b3fa0, #c7a2f2); --delete: light-dark(#b3261e, #ff9a92);
}
* { box-sizing: border-box; }
html { scroll-padding-top: 1rem; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
a { color: var(--link); text-underline-offset: 2px; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
code, pre { font: 0.875em/1.5 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
.frame { display: grid; grid-template-columns: 19rem minmax(0, 1fr); max-width: 82rem; margin: 0 auto; }
header { grid-column: 2; padding: 1.5rem 2rem 0; }
nav { grid-column: 1; grid-row: 1 / span 2; position: sticky; top: 0; height: 100vh; overflow-y: auto; padding: 1.5rem 1rem 3rem 1.5rem; border-right: 1px solid var(--line); font-size: 0.875rem; }
nav h2 { margin: 1.25rem 0 0.25rem; font-size: 0.8125rem; color: var(--soft); }
nav ul { list-style: none; margin: 0; padding: 0; }
nav a { display: block; padding: 0.125rem 0; color: var(--ink); text-decoration: none; }
nav a:hover { text-decoration: underline; }
main { grid-column: 2; padding: 0 2rem 6rem; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 0.5rem; }
main > h2 { margin: 3.5rem 0 0; padding-top: 1rem; border-top: 2px solid var(--ink); font-size: 1.25rem; text-transform: capitalize; }
article { padding: 1.75rem 0 0.5rem; }
article + article { margin-top: 1.5rem; border-top: 1px solid var(--line); }
h3 { display: flex; flex-wrap: wrap; gap: 0 0.75rem; align-items: baseline; margin: 0; font-size: 1.0625rem; }
h3 code { font-size: 1rem; font-weight: 600; }
h4 { margin: 1.25rem 0 0.25rem; font-size: 0.875rem; color: var(--soft); }
p { margin: 0.375rem 0; max-width: 46rem; }
.soft { color: var(--soft); font-size: 0.875rem; }
.verb { font-weight: 700; }
.GET { color: var(--get); } .POST { color: var(--post); } .PATCH, .PUT { color: var(--patch); } .DELETE { color: var(--delete); }
pre { margin: 0.5rem 0; padding: 0.75rem 1rem; background: var(--panel); border: 1px solid var(--line); border-radius: 4px; overflow-x: auto; white-space: pre-wrap; }
.table { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 0.875rem; }
th { text-align: left; font-weight: 600; color: var(--soft); }
th, td { padding: 0.3rem 1rem 0.3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td:first-child { width: 34%; } td:nth-child(2) { width: 20%; }
td b { color: var(--delete); }
.choice td { background: var(--panel); padding-left: 0.5rem; }
details { margin: 0.5rem 0; } summary { cursor: pointer; font-size: 0.9375rem; }
@media (max-width: 56rem) {
  .frame { display: block; } header { padding: 1rem 1rem 0; } nav { position: static; height: auto; border-right: 0; border-bottom: 1px solid var(--line); padding: 1rem; }
  nav ul { columns: 9rem; } main { padding: 0 1rem 4rem; }
}
@media print { nav { display: none; } .frame { display: block; } }
`;

/** What the page may load: its own style, by its hash. */
const POLICY = [
  "default-src 'none'",
  `style-src 'sha256-${createHash('sha256').update(STYLE).digest('base64')}'`,
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

interface Answer {
  readonly description: string;
  readonly content?: Readonly<Record<string, { readonly schema: Schema }>>;
}
interface OperationItem {
  readonly operationId: string;
  readonly summary: string;
  readonly tags: readonly string[];
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: { readonly content: { readonly 'application/json': { readonly schema: Schema } } };
  readonly responses: Readonly<Record<string, Answer>>;
  readonly security?: readonly object[];
  readonly 'x-websocket'?: boolean;
}
interface Document {
  readonly info: { readonly title: string; readonly version: string };
  readonly paths: Readonly<Record<string, Readonly<Record<string, OperationItem>>>>;
  readonly components: { readonly schemas: Readonly<Record<string, Schema>> };
}
interface Operation extends OperationItem {
  readonly method: string;
  readonly url: string;
}

let made: { readonly version: string; readonly page: string } | null = null;

/** @param version of the package; made once */
export async function docsPage(version: string): Promise<{ readonly page: string; readonly policy: string }> {
  if (made?.version !== version) made = { version, page: renderPage(await openApiDocument(version)) };
  return { page: made.page, policy: POLICY };
}

function renderPage(text: string): string {
  const { info, paths, components } = inlineResponses(JSON.parse(text) as Document);
  const operations: Operation[] = Object.entries(paths).flatMap(([url, item]) =>
    Object.entries(item).map(([method, operation]) => ({ ...operation, url, method: method.toUpperCase() })),
  );
  // Readers need the operations about the server itself last.
  const tags = [
    ...new Set([...operations.flatMap((operation) => operation.tags).filter((tag) => tag !== 'meta'), 'meta']),
  ];
  const common = listCommonCodes(operations);
  const page = html`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>${info.title} ${info.version}: HTTP API</title><style>${new Html(STYLE)}</style></head>
<body><div class="frame"><header><h1>${info.title} ${info.version}</h1>
<p>Made from <a href="/openapi.json">openapi.json</a>; <a href="/events.schema.json">events.schema.json</a> describes every event.
Where the server asks for a token, send it as <code>Authorization: Bearer …</code>. Fields marked <b>*</b> are required.
An error is <code>{"error": {"code", "message", "details"?}}</code>; programs look at <code>code</code>.</p></header>
<nav aria-label="Operations">${tags.map((tag) => renderMenu(tag, selectByTag(operations, tag)))}
<h2>shapes</h2><ul>${Object.keys(components.schemas).map((name) => html`<li><a href="#schema-${name}">${name}</a></li>`)}</ul></nav>
<main>${tags.map((tag) => [html`<h2 id="${tag}">${tag}</h2>`, ...selectByTag(operations, tag).map((operation) => renderOperation(operation, common))])}
<h2 id="shapes">shapes</h2>${Object.entries(components.schemas).map(([name, schema]) => renderSchema(name, schema))}
</main></div></body></html>
`;
  return page.text;
}

const selectByTag = (operations: readonly Operation[], tag: string) =>
  operations.filter(({ tags }) => tags.includes(tag));

function renderMenu(tag: string, operations: readonly Operation[]): Html {
  return html`<h2>${tag}</h2><ul>${operations.map(
    ({ operationId }) => html`<li><a href="#${operationId}">${operationId}</a></li>`,
  )}</ul>`;
}

function renderOperation(operation: Operation, common: ReadonlySet<string>): Html {
  const { operationId, method, url, summary, parameters = [], requestBody, responses } = operation;
  const body = requestBody?.content['application/json'].schema ?? null;
  const rows = parameters.map(({ name, in: place, required, schema, description = schema.description }) =>
    fieldRow(`${name} (${place})`, { ...schema, ...(description !== undefined && { description }) }, required === true),
  );
  const example = buildExample({ method, url, parameters, body, isSocket: operation['x-websocket'] === true });
  return html`<article id="${operationId}">
<h3><span class="verb ${method}">${method}</span><code>${url}</code><a class="soft" href="#${operationId}">${operationId}</a></h3>
<p>${summary} ${describeAccess(operation)}</p>
<pre>${example}</pre>
${rows.length === 0 ? '' : html`<h4>Parameters</h4><div class="table"><table><tbody>${rows}</tbody></table></div>`}
${body === null ? '' : html`<h4>Body</h4><div class="table">${fieldTable(body)}</div>`}
${Object.entries(responses).map(([status, answer]) => (Number(status) < 400 ? renderResult(status, answer) : ''))}
<h4>Errors</h4>
<p>${renderCodes(responses, (code) => !common.has(code))}</p>
<p class="soft">${renderCodes(responses, (code) => common.has(code))}</p>
</article>`;
}

function describeAccess({ security }: Operation): string {
  if (security === undefined) return '';
  if (security.length === 0) return 'Needs no token.';
  return 'Needs no token on loopback.';
}

function renderResult(status: string, { description, content = {} }: Answer): Html {
  const bodies = Object.entries(content);
  const title = html`<h4>${status} ${description}</h4>`;
  if (bodies.length === 0) return html`${title}<p>No body.</p>`;
  return html`${title}${bodies.map(
    ([type, { schema }]) => html`<p><code>${type}</code></p><div class="table">${fieldTable(schema)}</div>`,
  )}`;
}

function listErrorCodes({ content = {} }: Answer): readonly string[] {
  const [, narrowed] = content['application/json']?.schema.allOf ?? [];
  return (narrowed?.properties?.error?.properties?.code?.enum ?? []) as readonly string[];
}

function renderCodes(responses: Operation['responses'], wanted: (code: string) => boolean): readonly Html[] {
  return Object.entries(responses).flatMap(([status, answer]) => {
    const codes = Number(status) < 400 ? [] : listErrorCodes(answer).filter(wanted);
    if (codes.length === 0) return [];
    return [html`${status} ${codes.map((code) => html`<code>${code}</code> `)}`];
  });
}

/** What every operation may answer. */
function listCommonCodes(operations: readonly Operation[]): ReadonlySet<string> {
  const sets = operations.map(({ responses }) => new Set(Object.values(responses).flatMap(listErrorCodes)));
  return new Set([...(sets[0] ?? [])].filter((code) => sets.every((set) => set.has(code))));
}

function renderSchema(name: string, schema: Schema): Html {
  return html`<article id="schema-${name}"><h3>${name}</h3><div class="table">${fieldTable(schema)}</div></article>`;
}
