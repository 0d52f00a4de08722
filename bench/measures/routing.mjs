// Routing decisions against 100 rules of which only the last matches. They run in this process; beside them stands
// what the relay needs for a whole turn.
import { performance } from 'node:perf_hooks';
import { emptyAvailability, snapshot } from '#core/policy/registry/availability.ts';
import { createModelRegistry, parseRegistry } from '#core/policy/registry/model-registry.ts';
import { decideRoute } from '#core/policy/routing/chain.ts';
import { mergePolicies, parsePolicyFile } from '#core/policy/routing/policy-file.ts';
import { marker, timed } from '../client.mjs';
import { atMost } from '../limits.mjs';
import { registry as registryText } from '../processes.mjs';
import { median, percentile } from '../stats.mjs';

export const name = 'routing';

const DECISIONS = 10_000;
const RULES = 100;
const LIMIT_US = 1000;
const MESSAGE_WORDS = 300;

export async function measure(bench) {
  const { context, environment } = subject();
  const rounds = await bench.rounds({
    async relay() {
      const all = [];
      for (let i = 0; i < 20; i++) all.push(await timed(() => bench.relayClient.relay(marker({ chunks: 20 }))));
      return median(all) * 1000;
    },
    metis() {
      const all = [];
      for (let i = 0; i < DECISIONS; i++) {
        const began = performance.now();
        const { chosen_model } = decideRoute(context, environment);
        all.push((performance.now() - began) * 1000);
        if (chosen_model !== 'messages:worker') throw new Error('the last rule did not win');
      }
      return { p50: percentile(all, 50), p99: percentile(all, 99) };
    },
  });
  const of = (figure) => ({ metis: rounds.metis.map((r) => r[figure]), relay: rounds.relay });
  return [
    { row: `decision p50, ${RULES} rules`, unit: 'us', better: 'lower', ...of('p50') },
    { row: `decision p99, ${RULES} rules`, unit: 'us', better: 'lower', ...of('p99'), limit: atMost(LIMIT_US) },
  ];
}

function subject() {
  const file = need(parseRegistry(registryText('http://127.0.0.1:1'), 'registry.yaml'));
  const registry = createModelRegistry(file, new Set(file.adapters.keys()));
  const rule = (i) => {
    const when = i % 2 === 0 ? { message_matches: `deploy\\s+unit-${i}` } : { message_contains_any: [`topic-${i}`] };
    return {
      name: `rule ${i}`,
      when: i === RULES - 1 ? { estimated_input_tokens_gt: 10 } : when,
      use: 'messages:worker',
    };
  };
  const rules = Array.from({ length: RULES }, (_, i) => rule(i));
  const workspace = need(parsePolicyFile(JSON.stringify({ rules }), 'workspace', registry));
  const policies = mergePolicies({ workspace, global: null, configDefault: null }, registry);
  return {
    context: {
      session_id: 'sess_bench',
      turn_id: 'bench',
      estimated_input_tokens: 2000,
      smallest_input_tokens: 2000,
      has_images: false,
      message_has_images: false,
      has_tool_definitions: true,
      has_system_prompt: true,
      requires_structured_output: false,
      document_media_types: [],
      budget_limited: false,
      requested: null,
      per_message_override: null,
      session_active_model: null,
      is_worker: false,
      worker_tier_model: null,
      worker_tier_reason: null,
      workspace_path: '/tmp',
      user_message_text: Array.from({ length: MESSAGE_WORDS }, (_, i) => `word-${i}`).join(' '),
      cost_today_usd: '0',
      now: 0,
      recommendation: null,
      recommendation_absent: 'pattern store not configured',
    },
    environment: {
      registry,
      policies,
      availability: snapshot(emptyAvailability(), 0),
      isPriced: () => true,
      rateSum: () => 1n,
      allowCostlierFallback: true,
    },
  };
}

function need(result) {
  if (!result.ok) throw new Error(result.error.join('\n'));
  return result.value;
}
