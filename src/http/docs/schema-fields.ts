// A JSON Schema as HTML table rows and as an example call.

/** A piece of HTML that may be put into another one as it is. */
export class Html {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

type Part = Html | string | number | readonly Part[];

/** A template whose values are escaped, but for those that are HTML already; lists are joined. */
export function html(strings: TemplateStringsArray, ...parts: readonly Part[]): Html {
  return new Html(strings.map((text, i) => text + (i < parts.length ? renderPart(parts[i]!) : '')).join(''));
}

const ENTITIES: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };

function renderPart(part: Part): string {
  if (part instanceof Html) return part.text;
  if (typeof part === 'object') return part.map(renderPart).join('');
  return String(part).replace(/[&<>"]/g, (sign) => ENTITIES[sign]!);
}

export interface Schema {
  readonly $ref?: string;
  readonly type?: string | readonly string[];
  readonly format?: string;
  readonly description?: string;
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly default?: unknown;
  readonly pattern?: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: Schema | boolean;
  readonly items?: Schema;
  readonly anyOf?: readonly Schema[];
  readonly oneOf?: readonly Schema[];
  readonly allOf?: readonly Schema[];
}

/** A table of all fields below the schema; where it has none, its type in one line. */
export function fieldTable(schema: Schema): Html {
  const rows = fieldRows(schema, '');
  if (rows.length === 0) return html`<p>${renderType(schema)} ${renderRemarks(schema)}</p>`;
  const lead = schema.$ref !== undefined || schema.properties !== undefined ? '' : html`<p>${renderType(schema)}</p>`;
  return html`${lead}<table><thead><tr><th>Field</th><th>Type</th><th></th></tr></thead><tbody>${rows}</tbody></table>`;
}

/** One row: a parameter or a field. */
export function fieldRow(name: string, schema: Schema, required: boolean): Html {
  const needed = required ? html` <b title="required">*</b>` : '';
  return html`<tr><td><code>${name}</code>${needed}</td><td>${renderType(schema)}</td><td>${renderRemarks(schema)}</td></tr>`;
}

function fieldRows(schema: Schema, path: string): Html[] {
  const own = Object.entries(schema.properties ?? {}).flatMap(([name, field]) => [
    fieldRow(`${path}${name}`, field, schema.required?.includes(name) === true),
    ...renderNested(field, `${path}${name}`),
  ]);
  if (schema.properties === undefined) return renderNested(schema, path === '' ? '' : path);
  return own;
}

/** What lies below a field that is a list, a map, or one of several. */
function renderNested(schema: Schema, path: string): Html[] {
  const dot = path === '' ? '' : `${path}.`;
  if (schema.properties !== undefined) return fieldRows(schema, dot);
  if (schema.items !== undefined) return renderNested(schema.items, `${path}[]`);
  if (typeof schema.additionalProperties === 'object') return renderNested(schema.additionalProperties, `${dot}*`);
  const choices = schema.anyOf ?? schema.oneOf ?? schema.allOf ?? [];
  return choices.flatMap((choice) => {
    const rows = renderNested(choice, path);
    const kind = choice.properties === undefined ? undefined : findDiscriminator(choice);
    if (rows.length === 0 || kind === undefined) return rows;
    return [
      html`<tr class="choice"><td colspan="3"><code>${path}</code> of type <code>${kind}</code></td></tr>`,
      ...rows,
    ];
  });
}

/** The constant that distinguishes one choice from the others. */
function findDiscriminator({ properties = {} }: Schema): string | undefined {
  const constant = Object.values(properties)
    .map((field) => field.const ?? (field.enum?.length === 1 ? field.enum[0] : undefined))
    .find((value) => value !== undefined);
  if (constant === undefined) return undefined;
  return String(constant);
}

function renderType(schema: Schema): Html {
  const name = schema.$ref?.split('/').at(-1);
  if (name !== undefined) return html`<a href="#schema-${name}">${name}</a>`;
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices !== undefined)
    return joinTypes([...new Map(choices.map((one) => [renderType(one).text, renderType(one)])).values()]);
  if (schema.allOf !== undefined) return renderType(schema.allOf[0] ?? {});
  if (schema.const !== undefined) return html`<code>${JSON.stringify(schema.const)}</code>`;
  if (schema.items !== undefined) return html`list of ${renderType(schema.items)}`;
  const types = [schema.type ?? 'any'].flat().map((type) => (type === 'string' ? (schema.format ?? type) : type));
  return html`${types.join(' or ')}`;
}

function joinTypes(types: readonly Html[]): Html {
  return new Html(types.map(({ text }) => text).join(' or '));
}

function renderRemarks(schema: Schema): Html {
  const range = (low: number | undefined, high: number | undefined, what: string) => {
    const bounds: string[] = [];
    if (low !== undefined && low !== Number.MIN_SAFE_INTEGER) bounds.push(`at least ${low}`);
    if (high !== undefined && high !== Number.MAX_SAFE_INTEGER) bounds.push(`at most ${high}`);
    if (bounds.length === 0) return [];
    return [html`${bounds.join(', ')}${what}`];
  };
  const parts: Html[] = [];
  if (schema.description !== undefined) parts.push(html`${schema.description}`);
  if (schema.enum !== undefined)
    parts.push(html`${schema.enum.map((one) => html`<code>${JSON.stringify(one)}</code> `)}`);
  if (schema.default !== undefined) parts.push(html`default <code>${JSON.stringify(schema.default)}</code>`);
  parts.push(
    ...range(schema.minimum, schema.maximum, ''),
    ...range(schema.minLength, schema.maxLength, ' characters'),
    ...range(schema.minItems, schema.maxItems, ' items'),
  );
  if (schema.pattern !== undefined && schema.format === undefined) parts.push(html`<code>${schema.pattern}</code>`);
  return new Html(parts.map(({ text }) => text).join('; '));
}

export interface Parameter {
  readonly name: string;
  readonly in: 'path' | 'query' | 'header';
  readonly description?: string;
  readonly required?: boolean;
  readonly schema: Schema;
}

interface Call {
  readonly method: string;
  readonly url: string;
  readonly parameters: readonly Parameter[];
  readonly body: Schema | null;
  readonly isSocket: boolean;
}

const ORIGIN = '127.0.0.1:8420';
/** What a person would put in, by the name of the field. */
const VALUES: Readonly<Record<string, unknown>> = {
  name: 'ann',
  workspace_path: '~/project',
  max_cost_usd: '2.00',
  content: 'What could be simplified here?',
  text: 'What could be simplified here?',
  policy_yaml: 'schema_version: 1\nrules: []\ndefault: haiku\n',
  yaml: 'name: checker\ninstructions: Say whether the tests pass.\n',
  tier: 'fast',
  model: 'haiku',
  task: 'List the exported functions without a test.',
  decision: 'approve',
  dry_run: true,
  group_by: 'parent_session',
  from: 'all',
  preset: 'chat',
  baseline: 'planner',
  path: '.metis/workers/checker.yaml',
  sha256: '0'.repeat(64),
  routing: 'schema_version: 1\nrules: []\ndefault: haiku\n',
  with: '$OTHER_SESSION_ID',
  workspace: 'current',
  at_turn_id: '$TURN_ID',
};
const VARIABLE = /\$[A-Z_]+/g;
/** Fields that may be left out and yet say most about what the operation is for. */
const SHOWN = new Set([
  ...['max_cost_usd', 'policy_yaml', 'yaml', 'dry_run', 'group_by', 'from', 'tier', 'task'],
  ...['routing', 'at_turn_id'],
]);

/** Ids stand as shell variables: `$SESSION_ID`. */
export function buildExample({ method, url, parameters, body, isSocket }: Call): string {
  const path = url.replace(/\{(\w+)\}/g, (_, name: string) => `$${name.toUpperCase()}`);
  if (isSocket) return `wscat -c "ws://${ORIGIN}${path}?preset=chat"`;
  const query = parameters
    .filter(({ name, required, in: place }) => place === 'query' && (required === true || SHOWN.has(name)))
    .map(({ name, schema }) => `${name}=${encodeValue(String(exampleValue(name, schema)))}`)
    .join('&');
  const target = `"http://${ORIGIN}${path}${query === '' ? '' : `?${query}`}"`;
  const verb = method === (body === null ? 'GET' : 'POST') ? '' : ` -X ${method}`;
  if (body === null) return `curl -s${verb} ${target}`;
  const value = JSON.stringify(exampleValue('', body)).replaceAll("'", "'\\''").replace(VARIABLE, `'"$&"'`);
  return `curl -s${verb} ${target} \\\n  -H 'content-type: application/json' \\\n  -d '${value}'`;
}

/** A shell variable stays one. */
function encodeValue(value: string): string {
  return value.replace(VARIABLE, '') === '' ? value : encodeURIComponent(value);
}

function exampleValue(name: string, schema: Schema): unknown {
  if (name in VALUES && schema.enum?.includes(VALUES[name]) !== false) return VALUES[name];
  if (schema.default !== undefined) return schema.default;
  const [choice] = schema.enum ?? schema.anyOf?.map((one) => exampleValue(name, one)) ?? [];
  if (choice !== undefined) return choice;
  if (schema.properties === undefined) return '';
  const fields = Object.entries(schema.properties).filter(
    ([field]) => schema.required?.includes(field) === true || SHOWN.has(field),
  );
  return Object.fromEntries(fields.map(([field, inner]) => [field, exampleValue(field, inner)]));
}
