// The conformance suite of billing: what a provider's answer costs, to the last digit, on every way (22 §6).
import { Ajv2020 } from 'ajv/dist/2020.js';
import { expect, test } from 'vitest';
import { createFormRunner, FORM_SCHEMA, FORMS } from './forms.ts';

const isForm = new Ajv2020({ strict: true, allErrors: true }).compile(FORM_SCHEMA);

// Promise 22.12: every file of the suite is what its schema asks for, and a file that is not is refused.
test('every billing form has the shape of the schema, and one with a stray or a missing field has not', () => {
  for (const { name, form } of FORMS) expect([name, isForm(form), isForm.errors]).toEqual([name, true, null]);
  const { expected, ...rest } = FORMS[0]!.form;
  expect(isForm(rest)).toBe(false);
  expect(isForm({ ...rest, expected: { ...expected, colour: 'red' } })).toBe(false);
  expect(isForm({ ...rest, expected: { ...expected, cost_usd: 0.5 } })).toBe(false);
});

// Promise 22.12: the suite has at least 60 forms, streamed and whole on each of the three wires.
test('there are at least 60 billing forms, as many streamed as whole on each wire', () => {
  expect(FORMS.length).toBeGreaterThanOrEqual(60);
  for (const wire of ['messages', 'chat', 'responses']) {
    const of = FORMS.filter(({ form }) => form.wire === wire);
    expect(of.filter(({ form }) => form.request.stream).length).toBe(of.length / 2);
  }
});

// Promise 22.3: rounds below a step, an advisor, and a declined fallback with and without output cost the same by adapter and by gateway, streamed and whole.
// Promise 22.4: fees stand beside the tokens; a tool without a fee and terms without a multiplier are flagged, standard terms flag nothing.
// Promise 22.5: the reservation of each form's request is the largest bill that the form states, and no bill is above it.
// Promise 22.12: the suite runs against server and gateway.
test('each billing form costs what it says, by the gateway and by the adapter of its wire', {
  timeout: 120_000,
}, async () => {
  const runner = createFormRunner();
  const found: string[] = [];
  for (const { name, form } of FORMS) found.push(...(await runner.run(form)).map((line) => `${name}: ${line}`));
  expect(found).toEqual([]);
});

// Promise 22.12: a file with a wrong expectation fails.
test('a form with a wrong expectation is reported with what is wrong in it, on both ways', async () => {
  const runner = createFormRunner();
  const { form } = FORMS.find(({ name }) => name.endsWith('messages/three-web-searches-streamed.json'))!;
  const wrong = { ...form, expected: { ...form.expected, cost_usd: '0.0395001', fees: [] } };
  const fees = '[{"tool":"web_search","uses":3,"cost_usd":"0.03"}]';
  expect(await runner.run(wrong)).toEqual([
    `gateway: fees is ${fees}, expected []`,
    'gateway: cost_usd is "0.0395", expected "0.0395001"',
    `adapter: fees is ${fees}, expected []`,
    'adapter: cost_usd is "0.0395", expected "0.0395001"',
  ]);
});

// Promise 22.5: a form whose bill is above its largest one, and one whose largest bill is another, are reported.
test('a form with a wrong largest bill is reported', async () => {
  const runner = createFormRunner();
  const { form } = FORMS.find(({ name }) => name.endsWith('messages/three-web-searches-streamed.json'))!;
  const report = (largest_bill_usd: string | null, cost_usd = '0.0395') =>
    runner.run({ ...form, largest_bill_usd, expected: { ...form.expected, cost_usd } });
  expect(await report('1.834')).toEqual([]);
  expect(await report('1.833')).toEqual(['gateway: largest_bill_usd is 1.834, expected 1.833']);
  expect(await report(null)).toEqual(['gateway: largest_bill_usd is 1.834, expected null']);
  expect(await report('1.834', '1.8341')).toContain('cost_usd 1.8341 is above largest_bill_usd 1.834');
  const unbounded = FORMS.find(({ name }) => name.endsWith('messages/code-execution-whole.json'))!.form;
  expect(await runner.run({ ...unbounded, largest_bill_usd: '5' })).toEqual([
    'gateway: largest_bill_usd is null, expected 5',
  ]);
});
