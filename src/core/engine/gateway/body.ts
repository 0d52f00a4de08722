// The body that goes on: the client's bytes, with at most three splices (19 §2.2).

import { boundKey } from '#core/policy/gateway/bound.ts';
import type { NamedModel } from '#core/policy/gateway/names.ts';
import type { RequestFacts } from '#core/policy/gateway/request-facts.ts';
import { type Splice, spliced } from '#core/policy/gateway/splice.ts';
import type { AdapterConfig } from '#core/policy/registry/adapter-config.ts';
import type { ModelEntry } from '#protocol/model.ts';

export interface Sent {
  readonly pieces: readonly Buffer[];
  /** Counts are asked for that the client did not ask for. */
  readonly withhold_usage: boolean;
}

type Optioned = Pick<AdapterConfig, 'options'>;

export interface Changes {
  /** Name of the model in place of the one that stands there; null = as it is. */
  readonly model: string | null;
  /** Bound of the answer; null = as it is. */
  readonly output_tokens: number | null;
}

export function sentBody(bytes: Buffer, facts: RequestFacts, changes: Changes, adapter: Optioned): Sent {
  const splices: Splice[] = [];
  const { members } = facts;
  const replace = (key: string, text: string) => {
    const { from, to } = members.get(key)!;
    splices.push({ from, to, text });
  };
  const start = bytes.indexOf('{') + 1;
  let inserted = '';
  if (changes.model !== null) replace('model', JSON.stringify(changes.model));
  if (changes.output_tokens !== null) {
    const key = boundKey(facts, adapter);
    if (members.has(key)) replace(key, String(changes.output_tokens));
    else inserted += `${JSON.stringify(key)}:${changes.output_tokens},`;
  }
  const withhold = asksForUsage(facts, adapter);
  if (withhold) {
    const asking = facts.stream_options?.asking ?? null;
    if (!members.has('stream_options')) inserted += '"stream_options":{"include_usage":true},';
    else if (asking === null) replace('stream_options', '{"include_usage":true}');
    else splices.push(asking);
  }
  if (inserted !== '') splices.push({ from: start, to: start, text: inserted });
  return { pieces: splices.length === 0 ? [bytes] : spliced(bytes, splices), withhold_usage: withhold };
}

/** A server of which is said that it does not know the option is not asked. */
function asksForUsage({ wire, stream, stream_options }: RequestFacts, { options }: Optioned): boolean {
  return wire === 'chat' && stream && stream_options?.include_usage !== true && options.stream_usage !== false;
}

/** What stands in the body for the model that was chosen; null = what the client wrote. */
export function sentName(named: NamedModel | null, model: ModelEntry): string | null {
  return named !== null && named.model.id === model.id ? named.sent : model.wire_name;
}
