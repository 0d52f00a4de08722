// What a `SKILL.md` may look like, and what is said of one that does not (10 §5.1).
import { describe, expect, it } from 'vitest';
import { readSkill } from '#core/policy/skills/skill-text.ts';

const file = (head: string, body = 'Do it.') => `---\n${head}\n---\n${body}`;
function problems(text: string, folder = 'deploy'): readonly string[] {
  const read = readSkill(text, folder);
  return read.ok ? [] : read.error;
}

describe('a skill', () => {
  it('is its head and its body, whatever its line ends, with a version of the body alone', () => {
    const head =
      'name: deploy\ndescription: " How to deploy. "\nlicense: MIT\nextra: [1, 2]\nmetadata: { a: 1, b: true }';
    const one = readSkill(file(head, '\n\n# Steps\n---\nDo it.\n'), 'deploy');
    const body = '# Steps\n---\nDo it.\n';
    const known = { name: 'deploy', description: 'How to deploy.', body, estimated_body_tokens: 4 };
    expect(one).toEqual({
      ok: true,
      value: { skill: { ...known, version: expect.stringMatching(/^[0-9a-f]{16}$/) }, warnings: [] },
    });
    expect(readSkill(file(head, '\n\n# Steps\n---\nDo it.\n').replaceAll('\n', '\r\n'), 'deploy')).toEqual(one);
    const other = readSkill(file(head, 'Do it twice.'), 'deploy');
    expect(other.ok && one.ok && other.value.skill.version !== one.value.skill.version).toBe(true);
  });

  it('may have no body and the longest name and description', () => {
    const name = 'a'.repeat(64);
    expect(readSkill(`---\nname: ${name}\ndescription: ${'é'.repeat(1024)}\n---`, name)).toMatchObject({
      ok: true,
      value: { skill: { body: '' }, warnings: [] },
    });
  });

  // Promise 10.10: a skill with a long description is read, with a warning.
  it('has the first 1,024 characters of a longer description, with a warning', () => {
    const read = readSkill(file(`name: deploy\ndescription: ${'\u{1f600}'.repeat(1025)}`), 'deploy');
    expect(read).toMatchObject({
      ok: true,
      value: { skill: { description: '\u{1f600}'.repeat(1024) }, warnings: [expect.stringMatching(/^description: /)] },
    });
  });

  it.each([
    ['a name unlike its folder', 'name: other\ndescription: d', ['name: must equal']],
    ['two hyphens', 'name: a--b\ndescription: d', ['name: must be 1 to 64', 'name: must equal']],
    ['65 characters', `name: ${'a'.repeat(65)}\ndescription: d`, ['name: must be 1 to 64', 'name: must equal']],
    ['a number for a name', 'name: 5\ndescription: d', ['name: must be a string']],
    ['a blank description', 'name: deploy\ndescription: "  "', ['description: must not be blank']],
    ['no description', 'name: deploy', ['description: is required']],
    ['a list as metadata', 'name: deploy\ndescription: d\nmetadata: { a: [1] }', ['metadata.a: must be a string']],
    [
      'several faults',
      'name: B\ncompatibility: 1',
      ['name: must be', 'description: is', 'compatibility: must', 'name: '],
    ],
    ['no mapping', '- a', ['the head must be a mapping']],
    ['broken YAML', 'name: [', ['the head malformed YAML']],
    ['a tag of its own', 'name: !!js/function "x"', ['the head malformed YAML']],
    ['deep nesting', `name: ${'['.repeat(50)}${']'.repeat(50)}`, ['the head is nested deeper than 16']],
  ])('with %s is refused with all that is wrong', (_, head, expected) => {
    const found = problems(file(head));
    expect(found).toHaveLength(expected.length);
    for (const [i, start] of expected.entries()) expect(found[i]?.startsWith(start), found[i]).toBe(true);
  });

  it('needs a head between two lines of exactly three dashes', () => {
    expect(problems('name: deploy\n')).toEqual(['the first line must be "---"']);
    expect(problems('----\nname: deploy\n---\n')).toEqual(['the first line must be "---"']);
    expect(problems('---\nname: deploy\ndescription: d\n--- \n')).toEqual([
      'a line of exactly "---" must end the head',
    ]);
  });
});
