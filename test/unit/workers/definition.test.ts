// Definitions read and written: every fault with its line, one form for one content (13 §2, §3).
import { describe, expect, it } from 'vitest';
import { hashDefinition, hasSuffix, parseTemplate, readDefinition } from '#core/policy/workers/read-definition.ts';
import { reviseYaml } from '#core/policy/workers/revise-definition.ts';
import { formatDefinition } from '#core/policy/workers/write-definition.ts';
import type { WorkerDefinition } from '#protocol/worker-definition.ts';

const read = (text: string, format: 'yaml' | 'json' = 'yaml') =>
  readDefinition(text, { name: 'a', file: 'workers/a.yaml', format });
const told = (text: string, format: 'yaml' | 'json' = 'yaml') =>
  read(text, format).errors.map(({ path, message, line }) => `${line ?? ''} ${path}: ${message}`);
function valid(text: string) {
  const { definition, errors } = read(text);
  expect(errors).toEqual([]);
  return definition!;
}

describe('a definition with faults', () => {
  it('names every one of them with its line', () => {
    const text = [
      'instructions: Look.',
      'modle: haiku',
      'sandboxes:',
      '  in: { path: data, max_bytes: 0 }',
      '  out:',
      '    mode: RW',
      'tools: shell',
      'tool_rules:',
      '  - { name: shell, allowed: 1 }',
      'timeout_seconds: 4000',
    ].join('\n');
    expect(told(text)).toEqual([
      '2 modle: unknown key',
      '4 sandboxes.in.max_bytes: must be at least 1',
      '5 sandboxes.out.path: is required',
      '7 tools: must be a list',
      '8 tool_rules.shell.allowed: must be true or false',
      '10 timeout_seconds: must be at most 3600',
    ]);
  });

  it('says of an unknown key what was probably meant', () => {
    expect(told('instructions: x\ndescripton: y')).toEqual(['2 descripton: unknown key; did you mean "description"?']);
  });

  // Promise 17.10: every problem of a broken definition is told at once.
  it('names what is wrong in sound keys beside a broken one', () => {
    const text = [
      'modle: haiku',
      'name: b',
      "instructions: ' '",
      'model: opus',
      'tier: fast',
      'sandboxes: { in: { path: /etc } }',
    ];
    expect(told([...text, 'max_tokens: 0'].join('\n'))).toEqual([
      '1 modle: unknown key',
      '2 name: must equal the name of its file, "a"',
      '3 instructions: must not be blank',
      '5 tier: cannot be set together with model; write one of the two',
      '6 sandboxes.in.path: must be a folder below the workspace',
      '7 max_tokens: must be at least 1',
    ]);
    // What a broken key would have said is not guessed.
    expect(told('name: 5\nmodel: 7\ntier: fast')).toHaveLength(2);
  });

  it('is told so in JSON too', () => {
    expect(told('{\n "instructions": "x",\n "modle": 1\n}', 'json')).toEqual(['3 modle: unknown key']);
  });

  // Promise 13.1: a rule that stands twice in a list is an error.
  // Promise 13.7: overlapping sandboxes, suffixes without a dot and folders outside are errors.
  it.each([
    [
      'model and tier',
      'instructions: x\nmodel: haiku\ntier: fast',
      '3 tier: cannot be set together with model; write one of the two',
    ],
    ['another name than its file', 'instructions: x\nname: b', '2 name: must equal the name of its file, "a"'],
    ['blank instructions', 'instructions: "  "', '1 instructions: must not be blank'],
    [
      'a sandbox outside',
      'instructions: x\nsandboxes:\n  in: { path: /etc }',
      '3 sandboxes.in.path: must be a folder below the workspace',
    ],
    [
      'a sandbox that climbs out',
      'instructions: x\nsandboxes:\n  in: { path: a/../../b }',
      '3 sandboxes.in.path: must be a folder below the workspace',
    ],
    [
      'a suffix without a dot',
      'instructions: x\nsandboxes:\n  in: { path: a, suffixes: [md] }',
      '3 sandboxes.in.allowed_suffixes.0: must be "" or begin with "."',
    ],
    [
      'a sandbox to write in around one to read from',
      'instructions: x\nsandboxes:\n  out: { path: ., mode: rw }\n  in: { path: a/b }',
      '3 sandboxes.out.path: sandbox_overlap: "out" may be written to and holds "in", which may not',
    ],
    [
      'a sandbox that no look through its keys would show',
      'instructions: x\nsandboxes:\n  __proto__: { path: a, mode: rw }',
      '3 sandboxes.__proto__: is not a name',
    ],
    ['an unknown toolset', 'instructions: x\ntoolsets:\n  shell: {}', '3 toolsets.shell: unknown toolset "shell"'],
    [
      'a rule named twice',
      'instructions: x\ntool_rules: [{ name: shell }, { name: shell }]',
      '2 tool_rules.1.name: "shell" stands twice',
    ],
    ['a list at the top', '- x', ' : must be a mapping'],
    [
      'YAML that does not parse',
      'instructions: x\ntier: fast\ntier: deep',
      '3 : malformed YAML: duplicated mapping key at line 3, column 1',
    ],
  ])('is refused with its line: %s', (_, text, line) => {
    expect(told(text)).toEqual([line]);
  });

  it('of more bytes, aliases or depth than a person writes is not parsed', () => {
    expect(told(`instructions: ${'x'.repeat(262_145)}`)).toEqual([' : has more than 262144 bytes']);
    expect(told(`a: &a [x]\nb: [${Array(200).fill('*a').join(',')}]`)[0]).toMatch(/malformed YAML/);
    expect(told(`${'['.repeat(200)}`)[0]).toMatch(/nested deeper than 100 levels/);
    expect(told('instructions: !!js/function "x"')[0]).toMatch(/malformed YAML/);
    expect(told('instructions: x\ninstructions: y')[0]).toMatch(/malformed YAML/);
  });
});

describe('two spellings of one definition', () => {
  // Promise 13.1: rules as a list and as a map have one digest.
  it('have one digest: rules as a list or a map, toolsets or allow_workers and tools, any order', () => {
    const one = valid(
      'instructions: x\ntool_rules: [{ name: shell, allowed: false }, { name: sandbox.write, approval_required: true }]\n' +
        'toolsets: { delegation: { b: {}, worker_create: {} } }\nsandboxes: { in: { path: d, suffixes: [.MD], mode: RO } }',
    );
    const other = valid(
      'sandboxes: { in: { name: in, path: d, allowed_suffixes: [.md] } }\nallow_workers: [b]\ntools: [worker_create]\n' +
        'tool_rules: { sandbox.write: { approval_required: true }, shell: { allowed: false } }\ninstructions: x\nlocked: true',
    );
    expect(hashDefinition(other, 'x')).toBe(hashDefinition(one, 'x'));
    expect(hashDefinition(other, 'y')).not.toBe(hashDefinition(one, 'x'));
  });
});

describe('a saved definition', () => {
  const full =
    'locked: true\ntier: deep\ndescription: Judges decks.\ninstructions: |\n  You judge.\n    Indented: yes\n\n  # no comment\n' +
    'sandboxes:\n  out: { path: results, mode: rw }\n  input: { path: ., max_bytes: 5 }\nattachment_policy: { max_attachments: 1 }\n' +
    'allow_workers: ["*"]\ntools: [shell, mcp__x__*]\ntool_rules: { shell: { approval_required: true, description: "be: careful" } }\n' +
    'max_tokens: 5\ntimeout_seconds: 1.5\noutput_schema_ref: answer\n';

  // Promise 13.2: save, load, save gives the same bytes.
  it('is the same text after it was loaded and saved again', () => {
    const once = formatDefinition(valid(full.replace('path: .,', 'path: decks,')));
    expect(formatDefinition(valid(once))).toBe(once);
    expect(once).toContain('instructions: |\n  You judge.\n    Indented: yes\n\n  # no comment\n');
    expect(once.split('\n')[0]).toBe('name: a');
    expect(once).not.toMatch(/mode: ro|denied_suffixes|model:/);
    expect(once.indexOf('  input:')).toBeLessThan(once.indexOf('  out:'));
  });

  it('keeps what only looks like a default: a policy that was written, and texts that look like something else', () => {
    const text = formatDefinition(valid('instructions: "yes"\nattachment_policy: {}\ndescription: "1.0"'));
    expect(valid(text)).toMatchObject({
      instructions: 'yes',
      description: '1.0',
      attachment_policy: { max_attachments: 4 },
    });
    expect(valid(formatDefinition(valid('description: d')))).toMatchObject({
      attachment_policy: null,
      instructions: null,
    });
  });

  it.each(['a\r\nb', '\ttab', ' lead\nx', 'end ', 'x\n\n\n', '--- no\n...', 'a\u2028b', '#', 'null', '\u{1f600}'])(
    'gives back %j as it was',
    (instructions) => {
      const definition = valid(JSON.stringify({ instructions }));
      expect(valid(formatDefinition(definition)).instructions).toBe(instructions);
    },
  );
});

describe('a prompt template', () => {
  it('puts files in and knows nothing else', () => {
    expect(parseTemplate('a {{ file("x.md") }} b {{file(\'y\')}}')).toEqual({
      ok: true,
      value: [
        { kind: 'text', text: 'a ' },
        { kind: 'file', path: 'x.md' },
        { kind: 'text', text: ' b ' },
        { kind: 'file', path: 'y' },
      ],
    });
    for (const text of ['{% if x %}', '{{ x }}', '{# c #}', '{{ file(x) }}', '{{ file("a") | upper }}'])
      expect(parseTemplate(text)).toMatchObject({
        ok: false,
        error: expect.stringContaining('unsupported_template_syntax'),
      });
  });
});

describe('a suffix', () => {
  it.each([
    ['deck.PDF', ['.pdf'], true],
    ['.pdf', ['.pdf'], false],
    ['deck.pdf.exe', ['.pdf'], false],
    ['deck.tar.gz', ['.tar.gz'], true],
    ['Makefile', [''], true],
    ['.env', [''], true],
    ['a.b', [''], false],
    ['deckpdf', ['.pdf'], false],
  ])('of %s among %j: %s', (name, suffixes, expected) => {
    expect(hasSuffix(name, suffixes)).toBe(expected);
  });
});

describe('a file of a person that is replaced', () => {
  const FILE = [
    '# Who judges the decks. Ask Anna before you change it.',
    'description: Judges. # shown to the planner',
    'locked: true # reviewed',
    'tier: balanced',
    'instructions: |',
    '  # Rubric',
    '  Judge.',
    'sandboxes:',
    '  # What came in.',
    '  input: { path: decks, mode: ro } # nothing else',
    'tool_rules:',
    '  - name: shell # never',
    '    allowed: false',
    '',
  ].join('\n');
  const changed = (change: object, file = FILE) => reviseYaml(file, { ...valid(file), ...change });

  it('keeps its comments and its order: only what differs is another', () => {
    expect(changed({})).toBe(FILE);
    expect(changed({ locked: false })).toBe(FILE.replace('locked: true # reviewed\n', ''));
    expect(changed({ description: 'Judges well.' })).toBe(FILE.replace('Judges.', 'Judges well.'));
    const [input] = Object.values(valid(FILE).sandboxes);
    expect(changed({ sandboxes: { input: { ...input, mode: 'rw' } } })).toBe(FILE.replace('mode: ro', 'mode: rw'));
    expect(changed({ instructions: '# Rubric\nJudge twice.\n', timeout_seconds: 9 })).toBe(
      `${FILE.replace('Judge.', 'Judge twice.')}timeout_seconds: 9\n`,
    );
    expect(changed({ tier: null, model: 'opus' })).toBe(`${FILE.replace('tier: balanced\n', '')}model: opus\n`);
  });

  // Promise 13.41: a replaced file keeps its comments and says what the new definition says.
  it('says what the new definition says, in whatever form it was written', () => {
    const odd = [
      'instructions: &text Look. # here\nsandboxes:\n  a: &a { path: x }\n  b: *a # same',
      '{"instructions": "x", # json\n "locked": true}',
      'instructions: x # y\ntoolsets: { delegation: { other: {}, worker_call: {} } }\ntools: [shell] # s',
      'instructions: x # y\nsandboxes: { a: { path: x, suffixes: [.MD] } }',
      'instructions: x # y\ntool_rules: [{ name: shell, allowed: false }]\n"locked": yes',
      '? instructions # k\n: x',
    ];
    for (const text of odd) {
      const before = read(text).definition ?? valid('instructions: x');
      for (const change of [
        {},
        { locked: !before.locked },
        { tools: ['grep'], allow_workers: ['c'] },
        { sandboxes: { b: { name: 'b', path: 'z', mode: 'rw', allowed_suffixes: ['.md'], max_bytes: 5 } } },
        { tool_rules: {}, instructions: 'a\n# b\n' },
      ] satisfies Partial<WorkerDefinition>[])
        expect(valid(reviseYaml(text, { ...before, ...change })), text).toEqual({ ...before, ...change });
    }
  });

  it('is written anew where there is no comment to keep, or too much to look through', () => {
    const plain = 'locked: true\ninstructions: x\n';
    expect(changed({}, plain)).toBe('name: a\ninstructions: x\nlocked: true\n');
    const long = `# c\ninstructions: ${'x'.repeat(40_000)}\n`;
    expect(changed({ locked: true }, long)).toBe(formatDefinition({ ...valid(long), locked: true }));
  });
});
