// What `metis doctor` says about webhooks: who is told, and whether the key of the signature is there (17 §2, 20 §7).
import type { Config } from '#protocol/config.ts';
import type { Credentials } from '../credentials.ts';

export interface NotifyLine {
  readonly usable: boolean;
  readonly text: string;
}

/** One line a receiver. What follows an address's host is not shown: it may hold a secret. */
export function checkWebhooks({ notify }: Config, credentials: Credentials): NotifyLine[] {
  return notify.map(({ url, events, secret_env }, i) => {
    const about = `webhook to ${new URL(url).origin}`;
    const told = `${about}: ${events.join(', ')}`;
    if (secret_env === null) return { usable: true, text: `${told}; not signed` };
    if (credentials.secret(secret_env) !== null) return { usable: true, text: `${told}; signed with ${secret_env}` };
    const cure = `set it in the environment or in the data folder's .env, or remove notify.${i}.secret_env`;
    return { usable: false, text: `${about}: ${secret_env} is not set, so the server does not start; ${cure}` };
  });
}
