// A provider that names another model with every answer makes no end of series (18 §2).
import { expect, test } from 'vitest';
import type { Event } from '#protocol/event.ts';
import { createGenAiMetrics } from '#server/telemetry/metrics.ts';
import { createBus } from '#store/bus/memory/local-bus.ts';
import { recordingLog } from '../../provider/support.ts';

// Promise 18.6: bounded series.
test('the models that answered are 200 series at most, and the calls of the others count without their name', () => {
  const bus = createBus(recordingLog().log);
  const families = createGenAiMetrics(bus, {
    answers: { find: (id) => ({ 'gen_ai.response.model': `m${id}` }) },
    targetOf: () => ({ model: 'opus', server: {} }),
  });
  const usage = { input_tokens: 1, cached_input_tokens: 0, cache_creation_input_tokens: 0, output_tokens: 1 };
  for (let i = 0; i < 300; i++) {
    const payload = {
      ...usage,
      model: 'a:opus',
      provider: 'a',
      request_id: String(i),
      error_class: null,
      latency_ms: 1,
    };
    bus.publish([
      { kind: 'event', event: { type: 'llm.call_completed', payload } as unknown as Event, payload_json: '' },
    ]);
  }
  const times = families().find(({ name }) => name === 'gen_ai.client.operation.duration')!;
  expect(times.points).toHaveLength(201);
  const nameless = times.points.find(({ labels }) => labels['gen_ai.response.model'] === undefined);
  expect(nameless?.value).toMatchObject({ count: 100 });
});
