// Texts that want to stop a server: a fixed list of what once did, and as many variations of it as asked for.

import { createChance, nest } from './chance.ts';

export const KINDS = ['policy', 'workspace', 'body', 'arguments', 'schema'] as const;
export interface HostileCase {
  /** How it reaches the server. */
  readonly kind: (typeof KINDS)[number];
  readonly name: string;
  readonly text: string;
}

const flat = (count: number, line: (i: number) => string, joint = '\n') =>
  Array.from({ length: count }, (_, i) => line(i)).join(joint);
const bomb = (levels: number, width: number) =>
  flat(
    levels,
    (i) =>
      `a${i}: &a${i} [${Array(width)
        .fill(i === 0 ? 'x' : `*a${i - 1}`)
        .join(', ')}]`,
  );
const rules = (patterns: readonly string[]) =>
  `rules:\n${patterns.map((p) => `  - { use: plan, when: { message_matches: ${JSON.stringify(p)} } }`).join('\n')}\n`;

const YAML: Readonly<Record<string, string>> = {
  'lists in lists': '- '.repeat(20_000),
  'keys in keys': '? '.repeat(30_000),
  'open brackets': '['.repeat(100_000),
  'closed brackets': nest('[', '', ']', 50_000),
  'open braces': '{a: '.repeat(20_000),
  'deeper and deeper': flat(600, (i) => `${' '.repeat(i)}a:`),
  '20 000 keys': flat(20_000, (i) => `k${i}: 1`),
  '60 000 keys': flat(60_000, (i) => `k${i}: 1`),
  '9 000 keys': flat(9_000, (i) => `k${i}: 1`),
  'one key again and again': 'a: 1\n'.repeat(30_000),
  'aliases that multiply': bomb(12, 10),
  'an alias of itself': '&a [*a, *a]',
  'many anchors': flat(15_000, (i) => `- &a${i} x`),
  'many documents': '---\n'.repeat(60_000),
  'many directives': '%FOO bar\n'.repeat(20_000),
  'a long comment': '#'.repeat(250_000),
  'blank lines': ' \n'.repeat(100_000),
  'a long name': `${'x'.repeat(200_000)}: 1`,
  'many unknown names': `rules:\n${'  - { a: 1 }\n'.repeat(3_000)}`,
  'an open quote': `a: "${'b\n'.repeat(80_000)}`,
  colons: ': '.repeat(60_000),
  tags: '!!js/function ["x"]\n',
  'a prototype': '__proto__: { rules: [] }\nconstructor: { prototype: 1 }\n',
  'no text': '\0\u0001\uFFFF',
  'expressions that backtrack': rules(['(a+)+$', '(a|a)*$', '(.*)*(.*)*(.*)*!', '^(([a-z])+.)+[A-Z]([a-z])+$']),
  'large expressions': rules(Array(200).fill('.*a.{450}b')),
  'no expressions': rules(['(', '(?=a)', 'a{1000}{1000}', '('.repeat(900)]),
  'conditions in conditions': `rules: [{ use: plan, when: ${nest('{ not: ', '{ has_images: true }', ' }', 60)} }]`,
};

const JSONS: Readonly<Record<string, string>> = {
  'open arrays': `{"a":${'['.repeat(30_000)}`,
  'closed arrays': `{"a":${nest('[', '', ']', 30_000)}}`,
  'closed objects': nest('{"a":', '1', '}', 20_000),
  'just too deep': nest('{"a":', '1', '}', 101),
  'just not too deep': nest('{"a":', '1', '}', 99),
  'many values': `{"a":[${flat(150_000, () => '1', ',')}]}`,
  'many names': `{${flat(60_000, (i) => `"k${i}":1`, ',')}}`,
  'many unknown names': `{${flat(5_000, (i) => `"k\\n${i}":1`, ',')}}`,
  'a long name': `{"${'x'.repeat(300_000)}":1}`,
  'a long number': `{"a":${'1'.repeat(300_000)}}`,
  'a number without end': '{"a":1e999999}',
  'a prototype': '{"__proto__":{"a":1},"constructor":{"prototype":{"a":1}}}',
  'one name twice': '{"path":"a","path":"b"}',
  'half characters': '{"path":"\\ud800","text":"\\udc00\\u0000"}',
  quotes: `{"a":"${'\\"'.repeat(100_000)}`,
  backslashes: `{"a":"${'\\'.repeat(200_000)}"}`,
  'an array': '[]',
  nothing: '',
  junk: '\0{]}',
};

const doubling = (levels: number) =>
  `{"type":"object","$defs":{"a0":{"type":"object"},${flat(levels, (i) => `"a${i + 1}":{"allOf":[{"$ref":"#/$defs/a${i}"},{"$ref":"#/$defs/a${i}"}]}`, ',')}},"$ref":"#/$defs/a${levels}"}`;
const SCHEMAS: Readonly<Record<string, string>> = {
  'nested without end': `{"type":"object","not":${nest('{"not":', '{}', '}', 3_000)}}`,
  'an expression that backtracks': '{"type":"object","properties":{"s":{"pattern":"^(a+)+$"}},"required":["s"]}',
  'names that backtrack': '{"type":"object","patternProperties":{"^(a|a)*$":{"type":"integer"},"(x+x+)+y":false}}',
  'look-around': '{"type":"object","properties":{"s":{"pattern":"^(?=(a+)+$)"}}}',
  'references that double': doubling(60),
  'a schema of itself': '{"type":"object","$ref":"#"}',
  'a tree with two ways':
    '{"type":"object","anyOf":[{"properties":{"a":{"$ref":"#"}},"required":["z"]},{"properties":{"a":{"$ref":"#"}},"required":["z"]}]}',
  'items that differ': '{"type":"object","properties":{"list":{"uniqueItems":true}}}',
  'many names': `{"type":"object","properties":{${flat(900, (i) => `"k${i}":{"minLength":1}`, ',')}}}`,
  'many patterns': `{"type":"object","patternProperties":{${flat(900, (i) => `"^k${i}":{"minLength":1}`, ',')}}}`,
  'many alternatives': `{"type":"object","anyOf":[${flat(900, (i) => `{"required":["k${i}"]}`, ',')}]}`,
  'a ring of references': `{"type":"object","$defs":{${flat(700, (i) => `"d${i}":{"$ref":"#/$defs/d${(i + 1) % 700}"}`, ',')}},"$ref":"#/$defs/d0"}`,
  'a remote reference': '{"type":"object","$ref":"https://example.com/schema.json"}',
  'too many bytes': `{"type":"object","description":"${'x'.repeat(40_000)}"}`,
  'no schema': '{"type":"object","properties":{"s":{"minimum":"x","$async":true}}}',
};

const BY_KIND: Readonly<Record<HostileCase['kind'], Readonly<Record<string, string>>>> = {
  policy: YAML,
  workspace: YAML,
  body: JSONS,
  arguments: JSONS,
  schema: SCHEMAS,
};

/** Everything of the fixed list, by every way that it can take. */
export function knownCases(): HostileCase[] {
  return KINDS.flatMap((kind) => Object.entries(BY_KIND[kind]).map(([name, text]) => ({ kind, name, text })));
}

const MAX_LENGTH = 300_000;

/** Variations: cut, repeated, joined, wrapped and littered. The same seed gives the same texts. */
export function variations(seed: number, count: number): HostileCase[] {
  const { below, pick, changed } = createChance(seed);

  return Array.from({ length: count }, (_, i): HostileCase => {
    const kind = pick(KINDS);
    const texts = Object.values(BY_KIND[kind]);
    const [name, first] = pick(Object.entries(BY_KIND[kind]));
    let text = first.slice(0, MAX_LENGTH);
    for (let change = 0; change <= below(3); change++) text = changed(text, pick(texts)).slice(0, MAX_LENGTH);
    return { kind, name: `variation ${i} of ${name}`, text };
  });
}
