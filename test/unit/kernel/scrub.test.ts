// What the one scrub function takes out, and that no text makes it slow (01 §10.3).
import { describe, expect, it } from 'vitest';
import { scrub, scrubSecrets } from '#protocol/text/scrub.ts';

const JWT = 'eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl';

describe('a token of three parts', () => {
  it.each([JWT, `token=${JWT}`, `x-${JWT}`, `a.${JWT}`, `${JWT}.${JWT}`])('is taken out of %s', (text) => {
    expect(scrub(`said ${text} here`)).toMatch(/^said \S*\[REDACTED\]\S* here$/);
    expect(scrub(text)).not.toContain('eyJ');
  });

  it('is told from words that only begin like one', () => {
    const text = 'keyJar.propertyName.method eyJx.y.z eyJhbGciOiJIUzI1NiJ9 alone';
    expect(scrub(text)).toBe(text);
  });
});

describe('a text that wants to be slow', () => {
  const units = ['-eyJ', 'eyJaaaaaaaa.', '.eyJ', 'a@', 'a.b@c.', '/a+', '/a/', 'Bearer ', 'authorization ', ' ', '-'];
  units.push('-----BEGIN A', '-----BEGIN A-----', 'sk-', 'ghp_', 'AKIA', 'xoxb-', 'x', '%');
  it.each(units)('is read at once when it repeats %j', (unit) => {
    const text = unit.repeat(2_000_000 / unit.length);
    for (const read of [() => scrub(text), () => scrubSecrets(text, ['secret'])]) {
      const from = process.cpuUsage();
      read();
      expect(process.cpuUsage(from).user / 1000).toBeLessThan(500);
    }
  });
});

it('a cut leaves no half of a secret', () => {
  const secret = `${'s3cr3t'.repeat(100)}`;
  for (let before = 15_000; before < 17_000; before += 77) {
    const out = scrub(`sk-${'x'.repeat(before)} ${secret} and more`.padEnd(40_000), { secrets: [secret] });
    expect(out).not.toContain('s3cr3t');
  }
  expect(scrub('word '.repeat(10_000))).toBe('word '.repeat(400));
});
