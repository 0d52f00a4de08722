// What `metis doctor --online` says of the keys: one request to each provider that has one, which costs nothing (17 §2).

import type { RegistryFile } from '#core/policy/registry/registry.ts';
import { checkKey, type KeyCheck } from '#models/adapters/key-check.ts';
import { createHttpClient } from '#models/http/http-client.ts';
import { systemClock } from '#protocol/clock.ts';
import type { CommandContext } from '../context.ts';
import type { Settings } from '../start.ts';

export interface KeyLine {
  readonly level: 'ok' | 'warning' | 'error';
  readonly text: string;
}

/** One line for each adapter that can be used. Throws `StartupError` for a proxy that is no address. */
export async function checkKeysOnline({ env }: CommandContext, { adapters }: RegistryFile, settings: Settings) {
  const { credentials } = settings;
  const send = createHttpClient(env);
  const lines = await Promise.all(
    [...adapters].map(async ([id, config]): Promise<KeyLine | null> => {
      const found = credentials.forAdapter(id, config);
      if (found === null) return null;
      const { secrets } = credentials;
      const check = await checkKey({ config, found, send, clock: systemClock, secrets });
      if (check === null) return null;
      return describeKeyCheck(id, check, {
        keyed: found.key !== null,
        variable: credentials.keyName(id, config),
        file: settings.envFile.path,
      });
    }),
  );
  return lines.filter((line) => line !== null);
}

interface KeyPlace {
  readonly keyed: boolean;
  readonly variable: string;
  readonly file: string;
}

function describeKeyCheck(id: string, { verdict, answer }: KeyCheck, { keyed, variable, file }: KeyPlace): KeyLine {
  if (verdict === 'accepted') return { level: 'ok', text: `${id}: ${keyed ? 'the key is accepted' : 'it answers'}` };
  if (verdict === 'rejected') {
    const advice = `check ${variable} in the environment or in ${file}`;
    return {
      level: 'error',
      text: `${id}: ${keyed ? 'the key is rejected' : 'a key is required'}: ${answer}; ${advice}`,
    };
  }
  return { level: 'warning', text: `${id}: the key could not be tried: ${answer}` };
}
