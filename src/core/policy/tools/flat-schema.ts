// A tool's input schema whose root is one plain object: providers refuse unions and references there (09 §11.3).

import { err, ok, type Result } from '#protocol/result.ts';
import type { JsonSchema } from '#protocol/tool.ts';
import { isMapping, toList, toMapping } from '../parsing/yaml.ts';

/** A chain of references and unions can be longer than its text. */
const MAX_SHAPES = 200;
const MAX_PROPERTIES = 10_000;
const MAX_NOTE = 1000;
/** Root keywords that OpenAI, Anthropic or both refuse. Calls are still checked against them. */
const REFUSED: ReadonlySet<string> = new Set(['$ref', 'allOf', 'anyOf', 'oneOf', 'not', 'enum', 'const']);
/** A schema of these keywords alone narrows a value and describes nothing of its inside. */
const NARROWING: ReadonlySet<string> = new Set(['type', 'const', 'enum', 'title', 'description', 'default']);

/** The allowed and required properties of an object. */
interface Shape {
  readonly properties: ReadonlyMap<string, unknown>;
  readonly required: ReadonlySet<string>;
  /** `additionalProperties`; undefined = absent. */
  readonly others: unknown;
}

const EMPTY: Shape = { properties: new Map(), required: new Set(), others: undefined };

class Impossible extends Error {}

/**
 * An object schema with the properties of all variants of the given schema. Its description lists which properties belong
 * together. The error is the reason why no such schema exists.
 */
export function flattenSchema(root: JsonSchema): Result<JsonSchema, string> {
  if (!Object.keys(root).some((key) => REFUSED.has(key)))
    return ok({ ...root, type: 'object', properties: toMapping(root.properties) });
  try {
    const folding = new Folding(root);
    const shape = folding.readShape(root, true);
    if (shape === null) return err('accepts no object');
    const rest = Object.entries(root).filter(([key]) => !REFUSED.has(key));
    const { properties: _, required: __, additionalProperties: ___, ...kept } = Object.fromEntries(rest);
    // The properties of a form count as unevaluated once the form is gone.
    delete kept.unevaluatedProperties;
    const description = [kept.description, ...folding.notes].filter((text) => typeof text === 'string').join('\n');
    return ok({
      ...kept,
      ...(description !== '' && { description }),
      type: 'object',
      properties: Object.fromEntries(shape.properties),
      ...(shape.required.size > 0 && { required: [...shape.required] }),
      ...(shape.others !== undefined && { additionalProperties: shape.others }),
    });
  } catch (error) {
    if (error instanceof Impossible) return err(error.message);
    throw error;
  }
}

class Folding {
  readonly notes: string[] = [];
  readonly #root: JsonSchema;
  readonly #texts = new WeakMap<object, string>();
  #shapes = 0;
  #properties = 0;

  constructor(root: JsonSchema) {
    this.#root = root;
  }

  /** Null = no object is valid. @param noted whether a union is described: one inside another is not */
  readShape(node: unknown, noted: boolean): Shape | null {
    this.#shapes += 1;
    if (this.#shapes > MAX_SHAPES) throw new Impossible(`combines more than ${MAX_SHAPES} forms`);
    if (node === false) return null;
    if (!isMapping(node)) return EMPTY;
    if (node.type !== undefined && ![node.type].flat().includes('object')) return null;
    let shape: Shape | null = this.#readOwn(node);
    const also = [...toList(node.allOf)];
    if (typeof node.$ref === 'string') also.unshift(this.#findTarget(node.$ref));
    for (const part of also) shape = this.#intersect(shape, this.readShape(part, noted));
    for (const key of ['anyOf', 'oneOf'] as const) {
      const forms = node[key];
      if (Array.isArray(forms)) shape = this.#intersect(shape, this.#uniteForms(key, forms, noted));
    }
    return shape;
  }

  #readOwn(node: JsonSchema): Shape {
    const properties = Object.entries(toMapping(node.properties));
    this.#properties += properties.length;
    if (this.#properties > MAX_PROPERTIES) throw new Impossible(`combines more than ${MAX_PROPERTIES} properties`);
    const required = toList(node.required).filter((name) => typeof name === 'string');
    // Names by pattern are left out of a shape, so that it cannot be closed against them.
    const others = node.patternProperties === undefined ? node.additionalProperties : undefined;
    return { properties: new Map(properties), required: new Set(required), others };
  }

  #uniteForms(key: 'anyOf' | 'oneOf', forms: readonly unknown[], noted: boolean): Shape | null {
    const shapes = forms.flatMap((form) => this.readShape(form, false) ?? []);
    if (noted && shapes.length > 1) this.notes.push(unionNote(key, shapes));
    const [first, ...more] = shapes;
    if (first === undefined) return null;
    const schemas = new Map<string, unknown[]>();
    for (const [name, schema] of shapes.flatMap(({ properties }) => [...properties]))
      schemas.set(name, [...(schemas.get(name) ?? []), schema]);
    return {
      properties: new Map([...schemas].map(([name, list]) => [name, this.#uniteSchemas(list)])),
      required: new Set([...first.required].filter((name) => more.every(({ required }) => required.has(name)))),
      others: more.every(({ others }) => this.#toText(others) === this.#toText(first.others))
        ? first.others
        : undefined,
    };
  }

  #intersect(a: Shape | null, b: Shape | null): Shape | null {
    if (a === null || b === null) return null;
    const properties = new Map(a.properties);
    for (const [name, schema] of b.properties)
      properties.set(name, properties.has(name) ? this.#intersectSchemas(properties.get(name), schema) : schema);
    return {
      properties,
      required: new Set([...a.required, ...b.required]),
      others: this.#intersectOthers(a.others, b.others),
    };
  }

  /** Undefined where the two differ: one schema cannot hold both. */
  #intersectOthers(a: unknown, b: unknown): unknown {
    if (a === false || b === false) return false;
    if (a === undefined || b === undefined) return a ?? b;
    if (this.#toText(a) !== this.#toText(b)) return undefined;
    return a ?? b;
  }

  /** A schema for values that one of these accepts. */
  #uniteSchemas(list: readonly unknown[]): unknown {
    const distinct = [...new Map(list.map((schema) => [this.#toText(schema), schema])).values()];
    const [first] = distinct;
    if (distinct.length === 1) return first;
    const values = distinct.map(listValues);
    if (!isMapping(first) || !values.every((some) => some !== null)) return { anyOf: distinct };
    const { const: _, default: __, ...rest } = first;
    const types = new Set(distinct.map((schema) => this.#toText((schema as JsonSchema).type)));
    const { type, ...untyped } = rest;
    const merged = this.#removeDuplicates(values.flat());
    return { ...untyped, ...(types.size === 1 && type !== undefined && { type }), enum: merged };
  }

  /** A schema for values that both accept. */
  #intersectSchemas(a: unknown, b: unknown): unknown {
    if (this.#toText(a) === this.#toText(b) || b === true) return a;
    if (a === true || (isMapping(a) && Object.keys(a).length === 0)) return b;
    if (!isMapping(a) || !isMapping(b) || ![a, b].every((schema) => Object.keys(schema).every((k) => NARROWING.has(k))))
      return { allOf: [a, b] };
    if (a.type !== undefined && b.type !== undefined && this.#toText(a.type) !== this.#toText(b.type))
      return { allOf: [a, b] };
    const [mine, others] = [listValues(a), listValues(b)];
    const { const: _, ...joined }: Record<string, unknown> = { ...b, ...a };
    if (mine === null && others === null) return joined;
    const among = new Set((others ?? mine ?? []).map((value) => this.#toText(value)));
    return { ...joined, enum: (mine ?? others ?? []).filter((value) => among.has(this.#toText(value))) };
  }

  #removeDuplicates(values: readonly unknown[]): unknown[] {
    return [...new Map(values.map((value) => [this.#toText(value), value])).values()];
  }

  #toText(value: unknown): string {
    if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? '';
    const text = this.#texts.get(value) ?? JSON.stringify(value);
    this.#texts.set(value, text);
    return text;
  }

  #findTarget(ref: string): unknown {
    if (ref !== '#' && !ref.startsWith('#/')) throw new Impossible(`refers to ${JSON.stringify(ref)} at its root`);
    let node: unknown = this.#root;
    for (const part of ref.split('/').slice(1)) {
      const name = unescapePointer(part);
      const next = childValue(node, name);
      if (next === undefined) throw new Impossible(`refers to ${JSON.stringify(ref)}, which it does not have`);
      node = next;
    }
    return node;
  }
}

function childValue(node: unknown, name: string): unknown {
  if (Array.isArray(node)) return node[Number(name)];
  if (!isMapping(node) || !Object.hasOwn(node, name)) return undefined;
  return node[name];
}

function unescapePointer(part: string): string {
  try {
    return decodeURIComponent(part).replaceAll('~1', '/').replaceAll('~0', '~');
  } catch {
    return part;
  }
}

/** The only values that a schema accepts; null = it lists none. */
function listValues(schema: unknown): readonly unknown[] | null {
  if (!isMapping(schema) || !Object.keys(schema).every((key) => NARROWING.has(key))) return null;
  if ('const' in schema) return [schema.const];
  if (!Array.isArray(schema.enum)) return null;
  return schema.enum;
}

const AMOUNTS = { oneOf: 'Exactly one', anyOf: 'At least one' } as const;

function unionNote(key: 'anyOf' | 'oneOf', shapes: readonly Shape[]): string {
  const forms = shapes.map((shape, index) => `(${index + 1}) ${formText(shape)}`);
  const note = `${AMOUNTS[key]} of these combinations of properties is required: ${forms.join('; ')}.`;
  if (note.length <= MAX_NOTE) return note;
  return `${note.slice(0, MAX_NOTE)}...`;
}

function formText({ properties, required }: Shape): string {
  const needed = [...required].map((name) => {
    const values = listValues(properties.get(name));
    if (values?.length !== 1) return name;
    return `${name} = ${JSON.stringify(values[0])}`;
  });
  const optional = [...properties.keys()].filter((name) => !required.has(name));
  const parts = [...needed];
  if (optional.length > 0) parts.push(`optional ${optional.join(', ')}`);
  return parts.join(', ') || 'any';
}
