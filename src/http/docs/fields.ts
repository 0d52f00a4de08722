// The fields of a JSON Schema as rows of a table: where, what, and within which bounds.
import { Html, html } from './html.ts';

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
  if (rows.length === 0) return html`<p>${typeOf(schema)} ${remarks(schema)}</p>`;
  const lead = schema.$ref !== undefined || schema.properties !== undefined ? '' : html`<p>${typeOf(schema)}</p>`;
  return html`${lead}<table><thead><tr><th>Field</th><th>Type</th><th></th></tr></thead><tbody>${rows}</tbody></table>`;
}

/** One row: a parameter or a field. */
export function fieldRow(name: string, schema: Schema, required: boolean): Html {
  const needed = required ? html` <b title="required">*</b>` : '';
  return html`<tr><td><code>${name}</code>${needed}</td><td>${typeOf(schema)}</td><td>${remarks(schema)}</td></tr>`;
}

function fieldRows(schema: Schema, path: string): Html[] {
  const own = Object.entries(schema.properties ?? {}).flatMap(([name, field]) => [
    fieldRow(`${path}${name}`, field, schema.required?.includes(name) === true),
    ...inner(field, `${path}${name}`),
  ]);
  return schema.properties === undefined ? inner(schema, path === '' ? '' : path) : own;
}

/** What lies below a field that is a list, a map, or one of several. */
function inner(schema: Schema, path: string): Html[] {
  const dot = path === '' ? '' : `${path}.`;
  if (schema.properties !== undefined) return fieldRows(schema, dot);
  if (schema.items !== undefined) return inner(schema.items, `${path}[]`);
  if (typeof schema.additionalProperties === 'object') return inner(schema.additionalProperties, `${dot}*`);
  const choices = schema.anyOf ?? schema.oneOf ?? schema.allOf ?? [];
  return choices.flatMap((choice) => {
    const rows = inner(choice, path);
    const kind = choice.properties === undefined ? undefined : kindOf(choice);
    if (rows.length === 0 || kind === undefined) return rows;
    return [
      html`<tr class="choice"><td colspan="3"><code>${path}</code> of type <code>${kind}</code></td></tr>`,
      ...rows,
    ];
  });
}

/** The constant that tells one choice from the others. */
function kindOf({ properties = {} }: Schema): string | undefined {
  const constant = Object.values(properties)
    .map((field) => field.const ?? (field.enum?.length === 1 ? field.enum[0] : undefined))
    .find((value) => value !== undefined);
  return constant === undefined ? undefined : String(constant);
}

function typeOf(schema: Schema): Html {
  const name = schema.$ref?.split('/').at(-1);
  if (name !== undefined) return html`<a href="#schema-${name}">${name}</a>`;
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices !== undefined)
    return either([...new Map(choices.map((one) => [typeOf(one).text, typeOf(one)])).values()]);
  if (schema.allOf !== undefined) return typeOf(schema.allOf[0] ?? {});
  if (schema.const !== undefined) return html`<code>${JSON.stringify(schema.const)}</code>`;
  if (schema.items !== undefined) return html`list of ${typeOf(schema.items)}`;
  const types = [schema.type ?? 'any'].flat().map((type) => (type === 'string' ? (schema.format ?? type) : type));
  return html`${types.join(' or ')}`;
}

function either(types: readonly Html[]): Html {
  return new Html(types.map(({ text }) => text).join(' or '));
}

function remarks(schema: Schema): Html {
  const range = (low: number | undefined, high: number | undefined, what: string) => {
    const bounds = [
      ...(low === undefined || low === Number.MIN_SAFE_INTEGER ? [] : [`at least ${low}`]),
      ...(high === undefined || high === Number.MAX_SAFE_INTEGER ? [] : [`at most ${high}`]),
    ];
    return bounds.length === 0 ? [] : [html`${bounds.join(', ')}${what}`];
  };
  const said = [
    ...(schema.description === undefined ? [] : [html`${schema.description}`]),
    ...(schema.enum === undefined
      ? []
      : [html`${schema.enum.map((one) => html`<code>${JSON.stringify(one)}</code> `)}`]),
    ...(schema.default === undefined ? [] : [html`default <code>${JSON.stringify(schema.default)}</code>`]),
    ...range(schema.minimum, schema.maximum, ''),
    ...range(schema.minLength, schema.maxLength, ' characters'),
    ...range(schema.minItems, schema.maxItems, ' items'),
    ...(schema.pattern === undefined || schema.format !== undefined ? [] : [html`<code>${schema.pattern}</code>`]),
  ];
  return new Html(said.map(({ text }) => text).join('; '));
}
