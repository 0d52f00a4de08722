// A valid value for a zod schema, by way of its JSON Schema: so that a new event type is covered without a new sample.
import { z } from 'zod';
import { ulidOf } from '../../support/messages.ts';

interface Node {
  readonly type?: string | readonly string[];
  readonly pattern?: string;
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly anyOf?: readonly Node[];
  readonly oneOf?: readonly Node[];
  readonly properties?: Readonly<Record<string, Node>>;
  readonly items?: Node;
  readonly minItems?: number;
  readonly minimum?: number;
}

const STRINGS = [
  ulidOf(1),
  `sess_${ulidOf(2)}`,
  `tu_${ulidOf(3)}`,
  '0.000001',
  '2026-05-08T14:23:11.123Z',
  'a'.repeat(64),
  'b'.repeat(16),
];

export function sampleOf(schema: z.ZodType): Record<string, unknown> {
  return valueFor(z.toJSONSchema(schema, { io: 'input' }) as Node) as Record<string, unknown>;
}

function valueFor(node: Node): unknown {
  if (node.const !== undefined) return node.const;
  if (node.enum !== undefined) return node.enum[0];
  const choice = (node.anyOf ?? node.oneOf)?.[0];
  if (choice !== undefined) return valueFor(choice);
  switch (typeof node.type === 'string' ? node.type : node.type?.[0]) {
    case 'string':
      return textFor(node.pattern);
    case 'integer':
    case 'number':
      return Math.max(1, node.minimum ?? 1);
    case 'boolean':
      return true;
    case 'array':
      return Array.from({ length: Math.max(1, node.minItems ?? 1) }, () => valueFor(node.items ?? {}));
    case 'object':
      return Object.fromEntries(Object.entries(node.properties ?? {}).map(([key, value]) => [key, valueFor(value)]));
    default:
      return 'anything';
  }
}

function textFor(pattern: string | undefined): string {
  if (pattern === undefined) return 'text';
  const found = STRINGS.find((text) => new RegExp(pattern).test(text));
  if (found === undefined) throw new Error(`no sample matches ${pattern}`);
  return found;
}
