// One entry of the registry's `adapters:`, and which of them can be used (11.9, 11.10, 11.11).
import { isAbsolute, join } from 'node:path';
import { z } from 'zod';
import { type ClientWire, ClientWireSchema } from '#protocol/client-wire.ts';
import { isPlainUrl, PLAIN_URL } from '#protocol/config.ts';
import { issueLines } from '../parsing/plain-issue.ts';
import { isMapping } from '../parsing/yaml.ts';
import type { PromptClass } from '../pricing/price-table.ts';

export const ADAPTER_ID_PATTERN = /^[a-z0-9_-]+$/;
/** A provider that is silent for longer counts as lost. */
const SILENCE_LIMIT_SECONDS = 300;

const AdapterConfigSchema = z
  .strictObject({
    type: z.enum(['anthropic', 'openai', 'openrouter', 'scripted']),
    /** How an adapter of type openai calls its server. */
    wire: z.enum(['chat', 'responses']).default('chat'),
    /** The `anthropic-version` of an adapter of type anthropic; null = the older one. */
    api_version: z
      .string()
      .regex(/^\d{4}-\d\d-\d\d$/, 'must be a date such as "2026-10-21"')
      .nullable()
      .default(null),
    /** Null = the type's own address. */
    base_url: z.string().refine(isPlainUrl, PLAIN_URL).nullable().default(null),
    /** Null = `<ADAPTER ID>_API_KEY`. */
    api_key_env: z
      .string()
      .regex(/^[A-Za-z_][A-Za-z0-9_]*$/, 'must be the name of an environment variable')
      .nullable()
      .default(null),
    key_optional: z.boolean().default(false),
    timeout_seconds: z.number().gt(0).default(600),
    connect_timeout_seconds: z.number().gt(0).max(SILENCE_LIMIT_SECONDS).default(30),
    idle_timeout_seconds: z.number().gt(0).max(SILENCE_LIMIT_SECONDS).default(120),
    max_retries: z.int().min(0).max(10).default(2),
    /** Input tokens that the provider adds to a request unasked, at most; null = those of its type (14 §2). */
    overhead_tokens: z.int().min(0).max(1_000_000).nullable().default(null),
    extra_headers: z.record(z.string(), z.string()).default({}),
    options: z
      .strictObject({
        prompt_cache: z.boolean(),
        cache_ttl: z.enum(['5m', '1h']),
        /** Earlier name of `api_version`. */
        anthropic_version: z.string().min(1),
        stream_usage: z.boolean(),
        max_tokens_field: z.enum(['max_completion_tokens', 'max_tokens']),
        /** Which clients of the gateway it can serve; absent = those of its type. */
        wires: z.array(ClientWireSchema),
      })
      .partial()
      .default({}),
    /** Absolute path; null = the built-in scenario. */
    scenario: z.string().min(1).nullable().default(null),
  })
  .refine((a) => a.scenario === null || a.type === 'scripted', {
    path: ['scenario'],
    message: 'only an adapter of type scripted has a scenario',
  })
  .refine((a) => a.wire === 'chat' || a.type === 'openai', {
    path: ['wire'],
    message: 'only an adapter of type openai has a wire',
  })
  .refine((a) => a.api_version === null || a.type === 'anthropic', {
    path: ['api_version'],
    message: 'only an adapter of type anthropic has an api_version',
  });
/** Every default filled in. */
export type AdapterConfig = z.infer<typeof AdapterConfigSchema>;

/**
 * What providers write around a request: instructions for tools and schemas, the date, their own system text. 1,024, and
 * 1,500 where no recorded exchange shows that less is enough (22 §3).
 */
const TYPE_OVERHEAD: Readonly<Record<AdapterConfig['type'], number>> = {
  anthropic: 1500,
  openai: 1024,
  openrouter: 1500,
  scripted: 0,
};

/** The version that is sent where the registry names none. */
export const ANTHROPIC_VERSION = '2023-06-01';

/** The API version that an adapter of type anthropic sends. */
export function anthropicVersion({ api_version, options }: AdapterConfig): string {
  return api_version ?? options.anthropic_version ?? ANTHROPIC_VERSION;
}

export function overheadTokens({ type, overhead_tokens }: AdapterConfig): number {
  return overhead_tokens ?? TYPE_OVERHEAD[type];
}

/** The most expensive cache class of a prompt at this provider. OpenAI writes caches without a request. */
export function promptClass({ type, options }: AdapterConfig, ttl: '5m' | '1h'): PromptClass {
  if (type === 'scripted' || (type === 'anthropic' && options.prompt_cache === false)) return 'none';
  if (type === 'anthropic' && (options.cache_ttl ?? ttl) === '1h') return 'write_1h';
  return 'write';
}

/** How a provider caches prompts. */
export interface PromptCache {
  /** How long a prompt stays cached at least after its last use. */
  readonly lifetime_ms: number;
  /** The class that a prompt is billed as when it is cached again. */
  readonly write: 'write' | 'write_1h';
}

const MINUTE_MS = 60_000;

/** Null where no prompt is cached. A lifetime of an hour can be asked for where caches are marked in the request alone. */
export function promptCache({ type, options }: AdapterConfig, ttl: '5m' | '1h'): PromptCache | null {
  if (type === 'anthropic' && options.prompt_cache === false) return null;
  const wanted = (type === 'anthropic' && options.cache_ttl) || ttl;
  const isMarked = type === 'anthropic' || type === 'scripted';
  if (isMarked && wanted === '1h') return { lifetime_ms: 60 * MINUTE_MS, write: 'write_1h' };
  return { lifetime_ms: 5 * MINUTE_MS, write: 'write' };
}

/** The adapter of a provider that has a type of its own and needs no declaration; null for any other. */
export function knownAdapter(provider: string): AdapterConfig | null {
  const parsed = AdapterConfigSchema.safeParse({ type: provider });
  if (parsed.success) return parsed.data;
  return null;
}

/** The wires that servers of a type offer (19 §2.1). */
const TYPE_WIRES: Readonly<Record<AdapterConfig['type'], readonly ClientWire[]>> = {
  anthropic: ['messages'],
  openai: ['chat', 'responses'],
  openrouter: ['chat'],
  scripted: [],
};

/** The wires on which clients of the gateway reach the adapter; a scripted one has no address to send anything to. */
export function listWires({ type, options }: AdapterConfig): readonly ClientWire[] {
  if (type === 'scripted') return [];
  return options.wires ?? TYPE_WIRES[type];
}

/**
 * Checks one entry; faults are appended to `errors` and give null.
 * @param at key path of the entry
 * @param folder what a relative `scenario` is relative to
 */
export function readAdapterConfig(value: unknown, at: string, folder: string, errors: string[]): AdapterConfig | null {
  let entry = value;
  if (isMapping(value) && 'api_key' in value) {
    errors.push(
      `${at}.api_key: a key does not belong in a file; put it into the environment and its name into api_key_env`,
    );
    const { api_key: _, ...rest } = value;
    entry = rest;
  }
  const parsed = AdapterConfigSchema.safeParse(entry);
  if (!parsed.success) {
    errors.push(...issueLines(parsed.error, at));
    return null;
  }
  const { scenario } = parsed.data;
  if (scenario === null || isAbsolute(scenario)) return parsed.data;
  return { ...parsed.data, scenario: join(folder, scenario) };
}

/** The variable that holds the key of an adapter. @param named the adapter's `api_key_env` */
export function keyVariable(adapterId: string, named: string | null | undefined): string {
  return named ?? `${environmentStem(adapterId)}_API_KEY`;
}

/** Prefix of an adapter's environment variables. */
export function environmentStem(adapterId: string): string {
  return adapterId.toUpperCase().replaceAll(/[^A-Z0-9]/g, '_');
}

/**
 * What a person can do about an adapter without credentials.
 * @param keyName the variable that would hold its key
 * @param envFile the file that may hold it too
 */
export function keyAdvice({ base_url }: AdapterConfig, keyName: string, envFile: string): string {
  const advice = `set ${keyName} or add it to ${envFile}`;
  if (base_url === null) return advice;
  return `${advice}; or key_optional: true in the registry, where ${base_url} needs no key`;
}

/**
 * The adapters that can serve calls. A real one needs its credentials, a scripted one with a scenario of its own
 * needs nothing; the built-in scenario is used only if no other adapter is usable.
 * @param hasCredentials whether a key was found for a real adapter, or none is needed
 */
export function usableAdapters(
  adapters: ReadonlyMap<string, AdapterConfig>,
  hasCredentials: (id: string, config: AdapterConfig) => boolean,
): ReadonlySet<string> {
  const usable = new Set<string>();
  const standIns: string[] = [];
  for (const [id, config] of adapters) {
    if (config.type !== 'scripted') {
      if (hasCredentials(id, config)) usable.add(id);
    } else if (config.scenario === null) standIns.push(id);
    else usable.add(id);
  }
  if (usable.size > 0) return usable;
  return new Set(standIns);
}
