// What the providers refuse in the input schema of a tool; one such tool fails the whole request.
import { Ajv2020 } from 'ajv/dist/2020.js';

type Json = Readonly<Record<string, unknown>>;

const REFUSED_AT_ROOT = {
  anthropic: ['oneOf', 'anyOf', 'allOf'],
  openai: ['oneOf', 'anyOf', 'allOf', 'enum', 'const', 'not'],
};
const PROPERTY_NAME = /^[a-zA-Z0-9_.-]{1,64}$/;
const ajv = new Ajv2020({ strict: false, validateFormats: false, logger: false });

/** One line for each rule of the wire's provider that the schema breaks. */
export function schemaViolations(wire: 'anthropic' | 'openai', schema: Json): string[] {
  const out: string[] = [];
  if (schema?.type !== 'object') out.push('schema type must be object');
  for (const key of REFUSED_AT_ROOT[wire]) if (key in schema) out.push(`${key} is not supported at the top level`);
  const { $schema: _, ...plain } = schema;
  if (!ajv.validateSchema(plain)) out.push('JSON schema is invalid. It must match JSON Schema draft 2020-12');
  if (wire === 'anthropic') {
    for (const name of Object.keys((schema.properties as Json | undefined) ?? {}))
      if (!PROPERTY_NAME.test(name)) out.push(`property keys should match pattern ${PROPERTY_NAME.source}: ${name}`);
  } else {
    if (schema.properties === undefined) out.push('object schema missing properties');
    out.push(...arraysWithoutItems(schema, '$'));
  }
  return out;
}

function arraysWithoutItems(schema: unknown, path: string): string[] {
  if (typeof schema !== 'object' || schema === null) return [];
  const node = schema as Json;
  const isArray = [node.type].flat().includes('array');
  const isObject = typeof node.items === 'object' && !Array.isArray(node.items);
  const own = isArray && !isObject ? [`${path}: array schema missing items`] : [];
  return [...own, ...Object.entries(node).flatMap(([key, value]) => arraysWithoutItems(value, `${path}.${key}`))];
}
