// The reading page of the API, made from the OpenAPI document: no script, and nothing that is loaded from anywhere (18 §2).
import { createHash } from 'node:crypto';
import { openApiDocument } from '../openapi.ts';
import { exampleOf, type Parameter } from './example.ts';
import { fieldRow, fieldTable, type Schema } from './fields.ts';
import { Html, html } from './html.ts';
import { STYLE } from './style.ts';

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
  if (made?.version !== version) made = { version, page: pageOf(await openApiDocument(version)) };
  return { page: made.page, policy: POLICY };
}

function pageOf(text: string): string {
  const { info, paths, components } = JSON.parse(text) as Document;
  const operations: Operation[] = Object.entries(paths).flatMap(([url, item]) =>
    Object.entries(item).map(([method, operation]) => ({ ...operation, url, method: method.toUpperCase() })),
  );
  // What the server says of itself is what a reader needs last.
  const tags = [
    ...new Set([...operations.flatMap((operation) => operation.tags).filter((tag) => tag !== 'meta'), 'meta']),
  ];
  const common = commonCodes(operations);
  const page = html`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>${info.title} ${info.version}: HTTP API</title><style>${new Html(STYLE)}</style></head>
<body><div class="frame"><header><h1>${info.title} ${info.version}</h1>
<p>Made from <a href="/openapi.json">openapi.json</a>; <a href="/events.schema.json">events.schema.json</a> describes every event.
Where the server asks for a token, send it as <code>Authorization: Bearer …</code>. Fields marked <b>*</b> are required.
An error is <code>{"error": {"code", "message", "details"?}}</code>; programs look at <code>code</code>.</p></header>
<nav aria-label="Operations">${tags.map((tag) => menu(tag, ofTag(operations, tag)))}
<h2>shapes</h2><ul>${Object.keys(components.schemas).map((name) => html`<li><a href="#schema-${name}">${name}</a></li>`)}</ul></nav>
<main>${tags.map((tag) => [html`<h2 id="${tag}">${tag}</h2>`, ...ofTag(operations, tag).map((operation) => article(operation, common))])}
<h2 id="shapes">shapes</h2>${Object.entries(components.schemas).map(([name, schema]) => shape(name, schema))}
</main></div></body></html>
`;
  return page.text;
}

const ofTag = (operations: readonly Operation[], tag: string) => operations.filter(({ tags }) => tags.includes(tag));

function menu(tag: string, operations: readonly Operation[]): Html {
  return html`<h2>${tag}</h2><ul>${operations.map(
    ({ operationId }) => html`<li><a href="#${operationId}">${operationId}</a></li>`,
  )}</ul>`;
}

function article(operation: Operation, common: ReadonlySet<string>): Html {
  const { operationId, method, url, summary, parameters = [], requestBody, responses } = operation;
  const body = requestBody?.content['application/json'].schema ?? null;
  const rows = parameters.map(({ name, in: place, required, schema, description = schema.description }) =>
    fieldRow(
      `${name} (${place})`,
      { ...schema, ...(description === undefined ? {} : { description }) },
      required === true,
    ),
  );
  const example = exampleOf({ method, url, parameters, body, isSocket: operation['x-websocket'] === true });
  return html`<article id="${operationId}">
<h3><span class="verb ${method}">${method}</span><code>${url}</code><a class="soft" href="#${operationId}">${operationId}</a></h3>
<p>${summary} ${access(operation)}</p>
<pre>${example}</pre>
${rows.length === 0 ? '' : html`<h4>Parameters</h4><div class="table"><table><tbody>${rows}</tbody></table></div>`}
${body === null ? '' : html`<h4>Body</h4><div class="table">${fieldTable(body)}</div>`}
${Object.entries(responses).map(([status, answer]) => (Number(status) < 400 ? success(status, answer) : ''))}
<h4>Errors</h4>
<p>${codeList(responses, (code) => !common.has(code))}</p>
<p class="soft">${codeList(responses, (code) => common.has(code))}</p>
</article>`;
}

function access({ security }: Operation): string {
  if (security === undefined) return '';
  return security.length === 0 ? 'Needs no token.' : 'Needs no token on loopback.';
}

function success(status: string, { description, content = {} }: Answer): Html {
  const bodies = Object.entries(content);
  const title = html`<h4>${status} ${description}</h4>`;
  if (bodies.length === 0) return html`${title}<p>No body.</p>`;
  return html`${title}${bodies.map(
    ([type, { schema }]) => html`<p><code>${type}</code></p><div class="table">${fieldTable(schema)}</div>`,
  )}`;
}

function codesOf({ content = {} }: Answer): readonly string[] {
  const [, narrowed] = content['application/json']?.schema.allOf ?? [];
  return (narrowed?.properties?.error?.properties?.code?.enum ?? []) as readonly string[];
}

function codeList(responses: Operation['responses'], wanted: (code: string) => boolean): readonly Html[] {
  return Object.entries(responses).flatMap(([status, answer]) => {
    const codes = Number(status) < 400 ? [] : codesOf(answer).filter(wanted);
    return codes.length === 0 ? [] : [html`${status} ${codes.map((code) => html`<code>${code}</code> `)}`];
  });
}

/** What every operation may answer. */
function commonCodes(operations: readonly Operation[]): ReadonlySet<string> {
  const sets = operations.map(({ responses }) => new Set(Object.values(responses).flatMap(codesOf)));
  return new Set([...(sets[0] ?? [])].filter((code) => sets.every((set) => set.has(code))));
}

function shape(name: string, schema: Schema): Html {
  return html`<article id="schema-${name}"><h3>${name}</h3><div class="table">${fieldTable(schema)}</div></article>`;
}
