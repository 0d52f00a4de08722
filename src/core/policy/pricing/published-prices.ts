// Rates as the providers' own pages list them, each with its page and the day it was read (08 §10, 22 §5).
import type { RawEntry } from './price-file.ts';

const CLAUDE = 'https://platform.claude.com/docs/en';
const OPENAI = 'https://developers.openai.com/api/docs/models';

/** Made-up rates of the scripted provider, one model a class, so that a demo shows money. */
export const SCRIPTED: Readonly<Record<string, RawEntry>> = {
  'scripted:deep': toRates(['5', '25', '0.5', '6.25', '10']),
  'scripted:balanced': toRates(['3', '15', '0.3', '3.75', '6']),
  'scripted:fast': toRates(['1', '5', '0.1', '1.25', '2']),
};

const CLAUDE_TOOLS = {
  fees: { web_search: '10' },
  fees_source: readAt('https://www.anthropic.com/news/web-search-api').source,
} satisfies Partial<RawEntry>;
/** Of models since Opus 4.6 and Sonnet 4.6. */
const IN_THE_US = {
  multipliers: { inference_geo: { us: '1.1' } },
  multipliers_source: readAt('https://docs.aws.amazon.com/claude-platform/latest/userguide/data-residency.html').source,
} satisfies Partial<RawEntry>;

/** The source of a model's rates before any collection of others. */
export const PUBLISHED: Readonly<Record<string, RawEntry>> = {
  'anthropic:claude-fable-5-1': {
    ...readAt(`${CLAUDE}/about-claude/pricing`),
    ...toRates(['10', '50', '0.25', '12.5', '20']),
    ...CLAUDE_TOOLS,
    ...IN_THE_US,
  },
  'anthropic:claude-haiku-4-5': {
    ...readAt(`${CLAUDE}/about-claude/pricing`),
    ...toRates(['1', '5', '0.1', '1.25', '2']),
    ...CLAUDE_TOOLS,
  },
  'anthropic:claude-haiku-5-5': {
    ...readAt(`${CLAUDE}/models/haiku-5-5/overview`),
    ...toRates(['0.1', '0.5', '0.01', '0.125', '0.2']),
    long_context: [{ above_prompt_tokens: 100_000, ...toRates(['0.5', '2.5', '0.05', '0.625', '1']) }],
    ...CLAUDE_TOOLS,
    ...IN_THE_US,
  },
  'anthropic:claude-opus-4-7': {
    ...readAt(`${CLAUDE}/about-claude/pricing`),
    ...toRates(['5', '25', '0.5', '6.25', '10']),
    ...CLAUDE_TOOLS,
    ...IN_THE_US,
  },
  'anthropic:claude-opus-4-8': {
    ...readAt(`${CLAUDE}/about-claude/pricing`),
    ...toRates(['5', '25', '0.5', '6.25', '10']),
    ...CLAUDE_TOOLS,
    ...IN_THE_US,
  },
  'anthropic:claude-opus-5': {
    ...readAt(`${CLAUDE}/models/opus-5/overview`),
    ...toRates(['5', '25', '0.5', '6.25', '10']),
    ...CLAUDE_TOOLS,
    ...IN_THE_US,
  },
  'anthropic:claude-opus-5-5': {
    ...readAt(`${CLAUDE}/models/opus-5-5/overview`),
    ...toRates(['4', '20', '0.2', '5', '8']),
    ...CLAUDE_TOOLS,
    ...IN_THE_US,
  },
  'anthropic:claude-sonnet-4-6': {
    ...readAt(`${CLAUDE}/about-claude/pricing`),
    ...toRates(['3', '15', '0.3', '3.75', '6']),
    ...CLAUDE_TOOLS,
    ...IN_THE_US,
  },
  'anthropic:claude-sonnet-5': {
    ...readAt(`${CLAUDE}/models/sonnet-5/overview`),
    ...toRates(['2', '10', '0.2', '2.5', '4']),
    ...CLAUDE_TOOLS,
    ...IN_THE_US,
  },
  // Its cache reads cost half since 7 October 2026, which this page announces.
  'anthropic:claude-sonnet-5-5': {
    ...readAt(`${CLAUDE}/release-notes/overview`),
    ...toRates(['2', '10', '0.1', '2.5', '4']),
    ...CLAUDE_TOOLS,
    ...IN_THE_US,
  },
  'openai:gpt-6-luna': {
    ...readAt(`${OPENAI}/gpt-6-luna`),
    ...toRates(['0.1', '0.5', '0.01', '0.125']),
    long_context: [{ above_prompt_tokens: 272_000, ...toRates(['0.2', '0.75', '0.02', '0.25']) }],
  },
  'openai:gpt-6.1-sol': {
    ...readAt(`${OPENAI}/gpt-6.1-sol`),
    ...toRates(['2', '10', '0.1', '2.5']),
    long_context: [{ above_prompt_tokens: 272_000, ...toRates(['4', '15', '0.2', '5']) }],
  },
  'openai:gpt-6.2-sol': {
    ...readAt(`${OPENAI}/gpt-6.2-sol`),
    ...toRates(['2', '10', '0.1', '2.5']),
    long_context: [{ above_prompt_tokens: 272_000, ...toRates(['4', '15', '0.2', '5']) }],
    multipliers: { service_tier: { fast: '2', priority: '2' } },
    multipliers_source: readAt(`${OPENAI}/gpt-6.2-sol`).source,
  },
};

function readAt(url: string): { readonly source: NonNullable<RawEntry['source']> } {
  return { source: { url, read_on: '2026-11-23' } };
}

type Rates = readonly [input: string, output: string, read: string, write: string, write1h?: string];

function toRates([input, output, read, write, write1h]: Rates): Omit<RawEntry, 'source' | 'long_context'> {
  return {
    input_per_mtok_usd: input,
    output_per_mtok_usd: output,
    cached_read_per_mtok_usd: read,
    cache_write_per_mtok_usd: write,
    ...(write1h !== undefined && { cache_write_1h_per_mtok_usd: write1h }),
  };
}
