// The metrics that OpenTelemetry's conventions name for calls of language models, folded from committed events (18 §2).
import type { Attributes } from '@opentelemetry/api';
import type { LiveBus } from '#core/ports/live-bus.ts';
import { promptTokens } from '#protocol/usage.ts';
import type { AnswerFacts } from './answer-facts.ts';
import type { FindCallTarget } from './call-target.ts';
import { foldEvents } from './metrics.ts';
import { createHistogram, type Family } from './series.ts';

/** The bounds that the conventions advise. */
const TOKENS = [1, 4, 16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216, 67_108_864];
const SECONDS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];

/** Names that a provider gives: each is a series for as long as the server runs. */
const MAX_RESPONSE_MODELS = 200;

/** What the calls that end from now on used, and how long they took. */
export function createGenAiMetrics(
  bus: LiveBus,
  { answers, targetOf }: { readonly answers: Pick<AnswerFacts, 'find'>; readonly targetOf: FindCallTarget },
): () => Family[] {
  const usage = createHistogram(
    'gen_ai.client.token.usage',
    'Tokens of a model call, cached ones among the input.',
    TOKENS,
    '{token}',
  );
  const duration = createHistogram('gen_ai.client.operation.duration', 'Time of a model call.', SECONDS, 's');
  const seen = new Set<unknown>();
  const labelCall = ({ model, provider }: { readonly model: string; readonly provider: string }) => {
    const target = targetOf(model);
    return {
      'gen_ai.operation.name': 'chat',
      'gen_ai.provider.name': provider,
      'gen_ai.request.model': target.model,
      ...toLabels({ 'server.address': target.server['server.address'] }),
    };
  };
  foldEvents(bus, 'gen-ai-metrics', {
    'llm.call_completed'(payload) {
      const { 'gen_ai.response.model': served } = answers.find(payload.request_id);
      if (seen.size < MAX_RESPONSE_MODELS) seen.add(served);
      const shown = seen.has(served) ? served : undefined;
      const labels = { ...labelCall(payload), ...toLabels({ 'gen_ai.response.model': shown }) };
      usage.observe({ ...labels, 'gen_ai.token.type': 'input' }, promptTokens(payload));
      usage.observe({ ...labels, 'gen_ai.token.type': 'output' }, payload.output_tokens);
      const { error_class } = payload;
      const seconds = payload.latency_ms / 1000;
      duration.observe({ ...labels, ...(error_class === null ? {} : { 'error.type': error_class }) }, seconds);
    },
    'llm.call_failed': (payload) =>
      duration.observe({ ...labelCall(payload), 'error.type': payload.error_class }, payload.latency_ms / 1000),
  });
  return () => [usage.family(), duration.family()];
}

/** Labels are texts. */
function toLabels(attributes: Attributes): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.entries(attributes).flatMap(([k, v]) => (v === undefined ? [] : [[k, String(v)]])));
}
