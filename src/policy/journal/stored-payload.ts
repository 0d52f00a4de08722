// Payloads and metadata of messages as they are stored: a reader adds what their schema, their place or their row says (02 §5).
import { CATALOG, type EventType, type PayloadOf } from '../../domain/event.ts';
import { type MessageMetadata, MessageMetadataSchema, RoutingDecisionRecordSchema } from '../../domain/message.ts';
import { type PolicyEvaluation, PolicyEvaluationSchema, SLOTS } from '../../domain/route.ts';
import { UsageSchema } from '../../domain/usage.ts';
import { notEvaluated } from '../routing/candidate.ts';
import { defaultsOf, sparse, whole } from './sparse.ts';

type Values = Readonly<Record<string, unknown>>;
type Route = PayloadOf<'route.decided'>;

const DEFAULTS: ReadonlyMap<string, Values> = new Map(
  Object.entries(CATALOG).map(([type, { payload }]) => [type, defaultsOf(payload)]),
);
const EVALUATION = defaultsOf(PolicyEvaluationSchema);

/**
 * The text that a payload is stored as: 1.1 kB instead of 2.1 for the five events of a plain turn. What is left out is
 * what a missing field means, the root of a session that is its own, and of a routing decision what follows from its winner.
 * @param place the session of the event
 */
export function storedPayload(type: EventType, payload: Values, place: string): string {
  const kept = sparse(DEFAULTS.get(type)!, payload);
  if (kept.root_session_id === place) kept.root_session_id = undefined;
  if (type === 'route.decided') kept.chain = storedChain((payload as Route).chain);
  return JSON.stringify(kept);
}

/** A stored payload with every field that it has on the wire; of a type unknown to this version as it is. */
export function wholePayload(type: string, stored: Values, place: string): Values {
  const defaults = DEFAULTS.get(type);
  if (defaults === undefined) return stored;
  const payload = whole(defaults, stored);
  if ('root_session_id' in defaults) payload.root_session_id ??= place;
  if (type === 'route.decided') payload.chain = wholeChain(stored.chain as StoredChain);
  return payload;
}

type StoredChain = readonly Partial<PolicyEvaluation>[];

/** Slots are told by their places, and those behind the winner were not looked at. */
function storedChain(chain: Route['chain']): StoredChain {
  const end = chain.findIndex((entry) => entry.verdict === 'chose') + 1 || chain.length;
  const winner = chain[end - 1]?.policy;
  const tail = chain.slice(end);
  const follows = tail.every(({ verdict, reason }) => verdict === 'not_evaluated' && reason === `decided by ${winner}`);
  return (follows ? chain.slice(0, end) : chain).map((entry, at) => {
    const kept = sparse(EVALUATION, entry);
    if (kept.policy === SLOTS[at]) kept.policy = undefined;
    return kept;
  });
}

function wholeChain(stored: StoredChain = []): Route['chain'] {
  const said = stored.map((entry, at) => whole(EVALUATION, { policy: SLOTS[at], ...entry }) as PolicyEvaluation);
  const last = said.at(-1);
  if (last?.verdict !== 'chose') return said;
  return [...said, ...SLOTS.slice(said.length).map((policy) => notEvaluated(policy, last.policy))];
}

const METADATA = defaultsOf(MessageMetadataSchema);
const ROUTING = defaultsOf(RoutingDecisionRecordSchema);
const USAGE = defaultsOf(UsageSchema);

/** What a message's metadata is stored as; its status is a column of its row. */
export function storedMetadata({ status: _, routing, usage, ...metadata }: MessageMetadata): string {
  return JSON.stringify({
    ...sparse(METADATA, metadata),
    ...(routing !== null && {
      routing: {
        ...sparse(ROUTING, routing),
        ...(routing.chosen_model === metadata.model && { chosen_model: undefined }),
      },
    }),
    ...(usage !== null && { usage: sparse(USAGE, usage) }),
  });
}

/** Stored metadata with every field; that of an older version is whole already. */
export function wholeMetadata(stored: Values, status: string): MessageMetadata {
  const metadata = { ...whole(METADATA, stored), status };
  const { model, routing, usage } = metadata as unknown as MessageMetadata;
  return {
    ...metadata,
    routing: routing && whole(ROUTING, { chosen_model: model, ...(routing as Partial<typeof routing>) }),
    usage: usage && whole(USAGE, usage),
  } as MessageMetadata;
}
