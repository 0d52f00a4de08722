// Every adapter with an address as a relay for the gateway (19 §2.1).

import type { AdapterConfig } from '#core/policy/registry/adapter-config.ts';
import type { Logger } from '#core/ports/log.ts';
import type { Relay } from '#core/ports/relay.ts';
import type { Clock } from '#protocol/clock.ts';
import { type CredentialSource, DEFAULT_BASE_URLS } from '../adapters/adapters.ts';
import { ANTHROPIC_VERSION } from '../adapters/anthropic.ts';
import type { Send } from '../http/http.ts';
import { createExchangeLog, type ExchangeLog } from '../recorded/exchange-log.ts';
import type { ThreadedParser } from '../threads/threaded-parser.ts';
import { createRelay } from './relay.ts';

export interface RelaySetup {
  readonly adapters: ReadonlyMap<string, AdapterConfig>;
  readonly credentials: CredentialSource;
  /** Folder for exchanges; null = none is kept. */
  readonly record: string | null;
  readonly send: Send;
  readonly clock: Clock;
  readonly log: Logger;
  readonly parser: ThreadedParser;
}

export interface OpenRelays {
  readonly relays: ReadonlyMap<string, Relay>;
  /** Resolves when what was recorded is on disk. */
  settled(): Promise<void>;
}

export function createRelays({ adapters, credentials, record, send, clock, log, parser }: RelaySetup): OpenRelays {
  const relays = new Map<string, Relay>();
  const logs: ExchangeLog[] = [];
  for (const [id, config] of adapters) {
    if (config.type === 'scripted') continue;
    const found = credentials.forAdapter(id, config);
    const { secrets } = credentials;
    const exchanges =
      record === null ? null : createExchangeLog({ dir: record, adapter: id, clock, secrets, log, parser });
    if (exchanges !== null) logs.push(exchanges);
    relays.set(
      id,
      createRelay({
        type: config.type,
        baseUrl: config.base_url ?? found?.base_url ?? DEFAULT_BASE_URLS[config.type],
        key: found?.key?.trim() || null,
        keyed: found !== null,
        extraHeaders: config.extra_headers,
        anthropicVersion: config.options.anthropic_version ?? ANTHROPIC_VERSION,
        send,
        clock,
        record: exchanges,
        parser,
      }),
    );
  }
  return {
    relays,
    async settled() {
      await Promise.all(logs.map((one) => one.settled()));
    },
  };
}
