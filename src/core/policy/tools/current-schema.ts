// A tool's input schema in JSON Schema 2020-12, with a schema for the items of every array (09 §3, §11.3).
import type { JsonSchema } from '#protocol/tool.ts';
import { isMapping } from '../parsing/yaml.ts';

const DIALECT = /^https?:\/\/json-schema\.org\/(?:draft-07|draft\/2020-12)\/schema#?$/;
/** Keywords whose value is one schema. */
const SINGLE: ReadonlySet<string> = new Set([
  'additionalProperties',
  'contains',
  'contentSchema',
  'else',
  'if',
  'items',
  'not',
  'propertyNames',
  'then',
  'unevaluatedItems',
  'unevaluatedProperties',
]);
const LISTS: ReadonlySet<string> = new Set(['allOf', 'anyOf', 'oneOf', 'prefixItems']);
/** Keywords whose values are schemas by name. */
const MAPS: ReadonlySet<string> = new Set([
  '$defs',
  'definitions',
  'dependencies',
  'dependentSchemas',
  'patternProperties',
  'properties',
]);

/**
 * Accepts the same values as the given schema. Draft-07 tuples become `prefixItems`. Arrays get `items`, since OpenAI
 * requires them. `$schema` is removed where it names a dialect that this server reads.
 */
export function currentSchema(schema: JsonSchema): JsonSchema {
  const { $schema, ...rest } = schema;
  const known = $schema === undefined || (typeof $schema === 'string' && DIALECT.test($schema));
  return currentNode(known ? rest : schema);
}

function currentNode(node: JsonSchema): JsonSchema {
  const entries = Object.entries(node).filter(([key]) => key !== 'additionalItems');
  const walked: Record<string, unknown> = Object.fromEntries(
    entries.map(([key, value]) => [key, walkSchema(key, value)]),
  );
  const types = Array.isArray(node.type) ? node.type : [node.type];
  const isArray = types.includes('array') || Array.isArray(node.items) || Array.isArray(node.prefixItems);
  if (!isArray) return walked;
  return { ...walked, ...itemKeywords(node) };
}

function walkSchema(key: string, value: unknown): unknown {
  if (SINGLE.has(key)) return subschema(value);
  if (LISTS.has(key) && Array.isArray(value)) return value.map(subschema);
  if (MAPS.has(key) && isMapping(value))
    return Object.fromEntries(Object.entries(value).map(([name, child]) => [name, subschema(child)]));
  return value;
}

function subschema(value: unknown): unknown {
  if (!isMapping(value)) return value;
  return currentNode(value);
}

/** A closed tuple gets `maxItems`: providers accept an object alone as `items`. */
function itemKeywords(node: JsonSchema): Record<string, unknown> {
  const isOldTuple = Array.isArray(node.items);
  const tuple: unknown = isOldTuple ? node.items : node.prefixItems;
  const rest = isOldTuple ? node.additionalItems : node.items;
  const length = Array.isArray(tuple) ? tuple.length : 0;
  const most = typeof node.maxItems === 'number' ? Math.min(node.maxItems, length) : length;
  return {
    ...(isOldTuple && length > 0 && { prefixItems: (tuple as unknown[]).map(subschema) }),
    items: isMapping(rest) ? currentNode(rest) : {},
    ...(rest === false && { maxItems: most }),
  };
}
