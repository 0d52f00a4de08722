// One command for a terminal that calls an operation as it wants to be called.
import type { Schema } from './fields.ts';

export interface Parameter {
  readonly name: string;
  readonly in: 'path' | 'query' | 'header';
  readonly description?: string;
  readonly required?: boolean;
  readonly schema: Schema;
}

export interface Call {
  readonly method: string;
  readonly url: string;
  readonly parameters: readonly Parameter[];
  readonly body: Schema | null;
  readonly isSocket: boolean;
}

const ORIGIN = '127.0.0.1:8420';
/** What a person would put in, by the name of the field. */
const VALUES: Readonly<Record<string, unknown>> = {
  workspace_path: '~/project',
  max_cost_usd: '2.00',
  content: 'What could be simplified here?',
  text: 'What could be simplified here?',
  policy_yaml: 'schema_version: 1\nrules: []\ndefault: haiku\n',
  yaml: 'name: checker\ninstructions: Say whether the tests pass.\n',
  tier: 'fast',
  task: 'List the exported functions without a test.',
  decision: 'approve',
  dry_run: true,
  group_by: 'parent_session',
  from: 'all',
  preset: 'chat',
  baseline: 'planner',
  path: '.metis/workers/checker.yaml',
  sha256: '0'.repeat(64),
};
/** Fields that may be left out and yet say most about what the operation is for. */
const SHOWN = new Set(['max_cost_usd', 'policy_yaml', 'yaml', 'dry_run', 'group_by', 'from', 'tier', 'task']);

/** Ids stand as shell variables: `$SESSION_ID`. */
export function exampleOf({ method, url, parameters, body, isSocket }: Call): string {
  const path = url.replace(/\{(\w+)\}/g, (_, name: string) => `$${name.toUpperCase()}`);
  if (isSocket) return `wscat -c "ws://${ORIGIN}${path}?preset=chat"`;
  const query = parameters
    .filter(({ name, required, in: place }) => place === 'query' && (required === true || SHOWN.has(name)))
    .map(({ name, schema }) => `${name}=${encodeURIComponent(String(exampleValue(name, schema)))}`)
    .join('&');
  const target = `"http://${ORIGIN}${path}${query === '' ? '' : `?${query}`}"`;
  const verb = method === (body === null ? 'GET' : 'POST') ? '' : ` -X ${method}`;
  if (body === null) return `curl -s${verb} ${target}`;
  const value = JSON.stringify(exampleValue('', body)).replaceAll("'", "'\\''");
  return `curl -s${verb} ${target} \\\n  -H 'content-type: application/json' \\\n  -d '${value}'`;
}

function exampleValue(name: string, schema: Schema): unknown {
  if (name in VALUES) return VALUES[name];
  if (schema.default !== undefined) return schema.default;
  const [choice] = schema.enum ?? schema.anyOf?.map((one) => exampleValue(name, one)) ?? [];
  if (choice !== undefined) return choice;
  if (schema.properties === undefined) return '';
  const fields = Object.entries(schema.properties).filter(
    ([field]) => schema.required?.includes(field) === true || SHOWN.has(field),
  );
  return Object.fromEntries(fields.map(([field, inner]) => [field, exampleValue(field, inner)]));
}
