// The registry that ships with the package answers with any one key, or none (03 Acceptance 22).
import { readFileSync } from 'node:fs';
import { calcPrice } from '@pydantic/genai-prices';
import { describe, expect, it } from 'vitest';
import { PUBLISHED } from '#core/policy/pricing/published-prices.ts';
import { usableAdapters } from '#core/policy/registry/adapter-config.ts';
import { createModelRegistry, parseRegistry } from '#core/policy/registry/model-registry.ts';
import { decideRoute } from '#core/policy/routing/chain.ts';
import { tierModel } from '#core/policy/routing/policy-file.ts';
import { defaultConfig } from '#protocol/config.ts';
import { getProvider } from '#protocol/model.ts';
import { envOf, turn } from './world.ts';

const path = new URL('../../../config/registry.yaml', import.meta.url);
const parsed = parseRegistry(readFileSync(path, 'utf8'), path.pathname);
const file = parsed.ok ? parsed.value : { models: [], adapters: new Map<string, never>() };

describe('the shipped registry', () => {
  it('is valid', () => expect(parsed.ok ? [] : parsed.error).toEqual([]));

  it.each(['anthropic', 'openai', 'openrouter', null])(
    'routes a plain turn and every tier to one provider when only %s has a key',
    (key) => {
      const registry = createModelRegistry(
        file,
        usableAdapters(file.adapters, (id) => id === key),
      );
      const env = { ...envOf({ registry }), registry };
      const provider = key ?? 'scripted';
      const first = (tier: string) =>
        file.models.find((model) => model.tier === tier && getProvider(model.id) === provider)?.id;

      const decision = decideRoute(turn(), env);
      expect(decision).toMatchObject({ chosen_model: first('balanced'), winner_index: 6, refused: null });
      for (const tier of ['fast', 'balanced', 'deep'] as const) {
        expect(tierModel(env.policies, registry, tier)).toBe(first(tier));
        expect(first(tier)).toBeDefined();
      }
      const fast = first('fast')!;
      const worker = decideRoute(turn({ is_worker: true, worker_tier_model: fast }), env);
      expect(worker).toMatchObject({ chosen_model: fast, winner_index: 4 });
    },
  );

  it('lists only models whose price is publicly known, the savings baseline among them', () => {
    const real = file.models.filter((model) => model.adapter !== 'scripted');
    const unknown = real.filter(({ id }) => {
      if (id in PUBLISHED) return false;
      const provider = getProvider(id);
      const price = calcPrice({ input_tokens: 0, output_tokens: 0 }, id.slice(provider.length + 1), {
        providerId: provider,
      });
      return price?.model_price.input_mtok === undefined || price.model_price.output_mtok === undefined;
    });
    expect(unknown.map(({ id }) => id)).toEqual([]);
    expect(real.map(({ id }) => id)).toContain(defaultConfig('').analytics.savings_baseline);
  });

  // Promise 22.10: default tiers name no model that the registry marks superseded.
  it('names in no tier and by no short name a model that it marks superseded', () => {
    const byId = new Map(file.models.map((model) => [model.id, model]));
    for (const { id, superseded_by: newer } of file.models) {
      if (newer === null) continue;
      expect(byId.get(newer), id).toMatchObject({ superseded_by: null });
      expect(getProvider(newer)).toBe(getProvider(id));
    }
    for (const key of ['anthropic', 'openai', 'openrouter', 'scripted']) {
      const registry = createModelRegistry(
        file,
        usableAdapters(file.adapters, (id) => id === key),
      );
      for (const tier of ['fast', 'balanced', 'deep'] as const)
        expect(byId.get(registry.modelForTier(tier)!)?.superseded_by).toBeNull();
    }
    for (const alias of ['haiku', 'sonnet', 'opus', 'fable', 'gpt', 'gpt-mini', 'or-opus'])
      expect(file.models.find(({ aliases }) => aliases.includes(alias))?.superseded_by, alias).toBeNull();
  });

  it('has the page and the day of what it lists', () => {
    const text = readFileSync(path, 'utf8');
    expect(/^updated_on: "\d{4}-\d\d-\d\d"$/m.test(text)).toBe(true);
    for (const page of ['platform.claude.com/docs', 'developers.openai.com/api/docs']) expect(text).toContain(page);
  });

  it('offers delegation on every tier but fast', () => {
    const tiered = file.models.filter((model) => model.tier !== null);
    for (const model of tiered) expect(model.can_delegate).toBe(model.tier !== 'fast');
  });
});
