// A tool's input schema in JSON Schema 2020-12, with a schema for the items of every array (09 §3, §11.3).
import type { JsonSchema } from '#protocol/tool.ts';
import { isMapping, toList, toMapping } from '../parsing/yaml.ts';

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
export function toCurrentSchema(schema: JsonSchema): JsonSchema {
  const { $schema, ...rest } = schema;
  const isKnown = $schema === undefined || (typeof $schema === 'string' && DIALECT.test($schema));
  if (!isKnown) return toCurrentNode(schema);
  return toCurrentNode(rest);
}

function toCurrentNode(node: JsonSchema): JsonSchema {
  const entries = Object.entries(node).filter(([key]) => key !== 'additionalItems');
  const walked: Record<string, unknown> = Object.fromEntries(
    entries.map(([key, value]) => [key, walkSchema(key, value)]),
  );
  const types = [node.type].flat();
  const isArray = types.includes('array') || Array.isArray(node.items) || Array.isArray(node.prefixItems);
  if (!isArray) return walked;
  return { ...walked, ...itemKeywords(node) };
}

function walkSchema(key: string, value: unknown): unknown {
  if (SINGLE.has(key)) return toCurrentSubschema(value);
  if (LISTS.has(key) && Array.isArray(value)) return value.map(toCurrentSubschema);
  if (MAPS.has(key) && isMapping(value))
    return Object.fromEntries(Object.entries(value).map(([name, child]) => [name, toCurrentSubschema(child)]));
  return value;
}

function toCurrentSubschema(value: unknown): unknown {
  if (!isMapping(value)) return value;
  return toCurrentNode(value);
}

/** A closed tuple gets `maxItems`: providers accept an object alone as `items`. */
function itemKeywords(node: JsonSchema): Record<string, unknown> {
  if (!Array.isArray(node.items)) return closeTuple(node, toList(node.prefixItems), node.items);
  const closed = closeTuple(node, node.items, node.additionalItems);
  if (node.items.length === 0) return closed;
  return { prefixItems: node.items.map(toCurrentSubschema), ...closed };
}

/** @param rest the schema of the items behind the tuple; false = there are none */
function closeTuple(node: JsonSchema, tuple: readonly unknown[], rest: unknown): Record<string, unknown> {
  const items = toCurrentNode(toMapping(rest));
  if (rest !== false) return { items };
  if (typeof node.maxItems !== 'number') return { items, maxItems: tuple.length };
  return { items, maxItems: Math.min(node.maxItems, tuple.length) };
}
