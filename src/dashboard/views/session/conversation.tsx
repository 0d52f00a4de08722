// The conversation: messages and tool calls, turn by turn, and at its end the message that is being written.
import { Component, type ComponentChildren } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import type { Message, Turn } from '#client/client.ts';
import { explain, May, useApi } from '#dashboard/data/api.ts';
import { duration, formatCount, formatNumber } from '#dashboard/format/format.ts';
import { CopyButton } from '#dashboard/parts/copy-button.tsx';
import { Count, Icon, Money, State, Time } from '#dashboard/parts/labels.tsx';
import { Markdown } from '#dashboard/parts/markdown.tsx';
import { Clipped } from '#dashboard/parts/panels.tsx';
import { isDelivery } from '#protocol/text/delivery.ts';
import { nameReference } from '#protocol/text/model-reference.ts';
import { BranchButton, ForkOrigin } from './branch.tsx';
import { DelegationCard } from './delegation-card.tsx';
import { executedInput } from './edited-call.ts';
import { costWithWorkers, type LiveSession } from './live/live-node.ts';
import type { Block, OpenMessage } from './live/open-message.ts';
import { WhyModel } from './route-chain.tsx';
import { MessageImage, mapResults, ToolCard, type ToolResult, type ToolUse } from './tool-card.tsx';
import { type Live, useFollow } from './use-live-session.ts';

// The foot of an ended turn: what it took, and thumbs from which routing learns (12 §12.8).

const THUMBS = [
  { label: 'good', name: 'Good answer', icon: 'thumb', score: 1 },
  { label: 'bad', name: 'Bad answer', icon: 'thumbDown', score: 0 },
] as const;

type UserScore = Turn['user_score'];

function TurnEnd({ turn }: { readonly turn: Turn }) {
  const input = turn.total_input_tokens + turn.total_cached_input_tokens + turn.total_cache_creation_input_tokens;
  return (
    <footer class="turn-end">
      {turn.status !== 'completed' && <State state={turn.status} />}
      {turn.error_message !== null && <span class="field-error">{turn.error_message}</span>}
      <span>{formatCount(turn.llm_call_count, 'call')}</span>
      <span>
        <Count n={input} unit="token" rest=" in" /> in · <Count n={turn.total_output_tokens} unit="token" rest=" out" />{' '}
        out
      </span>
      {turn.wall_time_seconds !== null && <span class="number">{duration(turn.wall_time_seconds * 1000)}</span>}
      <Money usd={turn.total_cost_usd} />
      {turn.worker_session_ids.length > 0 && (
        <span>
          by workers <Money usd={turn.workers_cost_usd} />
        </span>
      )}
      {typeof turn.output === 'string' && turn.output !== '' && (
        <CopyButton text={turn.output} name="Copy the answer" />
      )}
      <May operation="scoreTurn">
        <TurnScore turn={turn} />
      </May>
    </footer>
  );
}

function TurnScore({ turn }: { readonly turn: Turn }) {
  const { client, reportFailure } = useApi();
  const [given, setGiven] = useState<UserScore>(null);
  const { score } = newest(given, turn.user_score) ?? { score: null };
  const [error, setError] = useState<string | null>(null);
  const give = async ({ label, score: wanted }: (typeof THUMBS)[number]) => {
    // The same score again would remove the comment of the stored one.
    if (score === wanted) return;
    try {
      setGiven(await client.scoreTurn(turn.session_id, turn.id, { score: label }));
      setError(null);
    } catch (reason) {
      reportFailure(reason);
      setError(explain(reason));
    }
  };
  return (
    <span class="turn-score">
      {error !== null && <span class="field-error">{error}</span>}
      {THUMBS.map((thumb) => (
        <button
          key={thumb.label}
          type="button"
          class="icon-button"
          aria-label={thumb.name}
          aria-pressed={score === thumb.score}
          title={thumb.name}
          onClick={() => void give(thumb)}
        >
          <Icon name={thumb.icon} />
        </button>
      ))}
    </span>
  );
}

/** The later of two scores: the one given here may not be read back yet, and another person may have given one since. */
function newest(here: UserScore, read: UserScore): UserScore {
  if (here !== null && (read === null || here.scored_at > read.scored_at)) return here;
  return read;
}

interface Shown {
  readonly live: LiveSession;
  readonly results: ReadonlyMap<string, ToolResult>;
  /** By the call of a background worker, when its result was delivered. */
  readonly deliveries: ReadonlyMap<string, string>;
}

export function Conversation(props: {
  readonly live: LiveSession;
  readonly frame: number;
  readonly turns: ReadonlyMap<string, Turn>;
  readonly loadOlder: Live['loadOlder'];
}) {
  const { live, turns } = props;
  const results = useMemo(() => mapResults(live.messages), [live, live.version]);
  const deliveries = useMemo(() => mapDeliveries(live.messages), [live, live.version]);
  const shown = { live, results, deliveries };
  const open = [...live.open.values()].filter(({ session_id }) => session_id === live.id);
  const box = useFollow(props.frame, props.loadOlder);
  return (
    <div class="conversation" ref={box} role="log" aria-label="Conversation" aria-busy={open.length > 0} tabIndex={0}>
      <div class="conversation-inner">
        {live.hasOlder && <p class="older quiet">Earlier messages load as you scroll up.</p>}
        {!live.hasOlder && live.session?.task != null && (
          <section class="task" aria-label="Task">
            <h2>Task</h2>
            <Clipped text={live.session.task}>{(shown) => <div class="prose">{shown}</div>}</Clipped>
          </section>
        )}
        {!live.hasOlder && live.session !== null && <ForkOrigin session={live.session} />}
        {storedItems(shown, turns, props.frame)}
        {open.map((message) => (
          <OpenMessageItem key={message.id} message={message} shown={shown} />
        ))}
      </div>
    </div>
  );
}

function mapDeliveries(messages: readonly Message[]): ReadonlyMap<string, string> {
  const delivered = messages.filter(isDelivery);
  return new Map(delivered.map(({ metadata, created_at }) => [metadata.parent_tool_use_id ?? '', created_at]));
}

function storedItems(shown: Shown, turns: ReadonlyMap<string, Turn>, frame: number): ComponentChildren[] {
  const messages = shown.live.messages.filter(({ role }) => role === 'user' || role === 'assistant');
  const last = new Map(messages.map(({ turn_id, id }) => [turn_id, id]));
  return messages.map((message) => {
    const turn = turns.get(message.turn_id ?? '');
    const ends = last.get(message.turn_id) === message.id;
    const stamp = `${turn?.status} ${turn?.user_score?.scored_at} ${ends} ${computeStamp(message, shown, frame)}`;
    return <StoredItem key={message.id} message={message} shown={shown} turn={turn} ends={ends} stamp={stamp} />;
  });
}

/** Changes with whatever a message shows besides itself; with every frame while a worker of it runs. */
function computeStamp(
  { content, turn_id, role }: Message,
  { live, results, deliveries }: Shown,
  frame: number,
): string {
  if (role === 'user') return String(turn_id !== null && live.routes.has(turn_id));
  return content
    .filter((block) => block.type === 'tool_use')
    .map(({ id }) => {
      const call = live.calls.get(id);
      const node = live.nodes.find(({ session_id }) => session_id === call?.worker_session_id);
      if (node !== undefined && node.ended_at === null) return frame;
      // What was not applied may be in what another worker left.
      const { applied = null } = call?.record ?? {};
      const others =
        applied === false && [...live.calls.values()].filter(({ record }) => record?.applied === true).length;
      return `${applied} ${others} ${results.has(id)} ${deliveries.has(id)} ${live.edits.has(id)} ${live.tools.get(id)?.status} ${call?.record?.ended_at} ${node?.state} ${node?.input_tokens}`;
    })
    .join();
}

interface ItemProps {
  readonly message: Message;
  readonly shown: Shown;
  readonly turn: Turn | undefined;
  /** Nothing of its turn comes behind it. */
  readonly ends: boolean;
  readonly stamp: string;
}

/** A message that is drawn anew only when something of it has changed: there may be thousands. */
class StoredItem extends Component<ItemProps> {
  override shouldComponentUpdate(next: ItemProps): boolean {
    return next.message !== this.props.message || next.stamp !== this.props.stamp;
  }
  override render() {
    const { message, shown, turn, ends } = this.props;
    const delivered = isDelivery(message);
    return (
      <div class={`message ${delivered ? 'assistant' : message.role}`}>
        {delivered && <DeliveredResult message={message} shown={shown} />}
        {message.role === 'user' && !delivered && <UserMessage message={message} shown={shown} turn={turn} />}
        {message.role !== 'user' && <Blocks content={message.content} shown={shown} />}
        {shown.live.session?.is_worker === false && (
          <May operation="forkSession">
            <BranchButton sessionId={shown.live.id} messageId={message.id} />
          </May>
        )}
        {message.metadata.status === 'cancelled' && <p class="quiet">stopped by a cancellation</p>}
        {message.metadata.status === 'error' && <p class="field-error">stopped by an error</p>}
        {ends && turn !== undefined && turn.ended_at !== null && <TurnEnd turn={turn} />}
      </div>
    );
  }
}

/** The result of a background worker, where its planner read it. */
function DeliveredResult({ message, shown }: Pick<ItemProps, 'message' | 'shown'>) {
  const [heading, ...rest] = message.content.flatMap((block) => (block.type === 'text' ? [block.text] : []));
  const worker = shown.live.nodes.find(({ session_id }) => heading?.startsWith(`[worker ${session_id} `));
  const title = heading?.replace(/^\[|\]$/g, '') ?? '';
  return (
    <details>
      <summary class="quiet">
        {worker === undefined ? title : title.replace(`worker ${worker.session_id}`, worker.label)}, delivered{' '}
        <Time at={message.created_at} />
      </summary>
      <pre>{rest.join('\n')}</pre>
    </details>
  );
}

function UserMessage(props: { readonly message: Message; readonly shown: Shown; readonly turn: Turn | undefined }) {
  const { message, turn } = props;
  const { live } = props.shown;
  const first = turn === undefined || turn.user_message_id === message.id;
  return (
    <>
      <div class="bubble">
        {message.content.map((block, i) => (
          <UserBlock key={`block ${i + 1}`} block={block} />
        ))}
        <div class="bubble-foot">
          <Time at={message.created_at} />
        </div>
      </div>
      {message.turn_id !== null && first && (
        <WhyModel
          sessionId={live.id}
          turnId={message.turn_id}
          model={nameChosen(turn ?? live.routes.get(message.turn_id))}
          known={live.routes.get(message.turn_id)}
        />
      )}
    </>
  );
}

function nameChosen(decided: { chosen_model: string | null; chosen_effort: Turn['chosen_effort'] } | undefined) {
  if (decided?.chosen_model == null) return null;
  return nameReference(decided.chosen_model, decided.chosen_effort);
}

function UserBlock({ block }: { readonly block: Block }) {
  if (block.type !== 'text') return <OtherBlock block={block} />;
  return <Clipped text={block.text}>{(shown) => <div class="prose">{shown}</div>}</Clipped>;
}

/** Of one message that are drawn at once: a model may call hundreds of tools together. */
const BLOCKS = 60;

function Blocks(props: {
  readonly content: readonly Block[];
  readonly shown: Shown;
  readonly partial?: ReadonlyMap<number, string>;
}) {
  const [most, setMost] = useState(BLOCKS);
  const more = props.content.length - most;
  return (
    <>
      {props.content.slice(0, most).map((block, i) => {
        const key = `${block.type} ${i + 1}`;
        if (block.type === 'text') return <Markdown key={key} text={block.text} />;
        if (block.type === 'thinking') return <Thinking key={key} text={block.text} />;
        if (block.type !== 'tool_use') return <OtherBlock key={key} block={block} />;
        return <Call key={block.id} use={block} shown={props.shown} partial={props.partial?.get(i)} />;
      })}
      {more > 0 && (
        <button type="button" class="button ghost more" onClick={() => setMost(most + BLOCKS)}>
          {formatNumber(more)} more
        </button>
      )}
    </>
  );
}

/** A call of a tool, or a delegation where it began one. */
function Call(props: { readonly use: ToolUse; readonly shown: Shown; readonly partial: string | undefined }) {
  const { use, shown, partial } = props;
  const { live, results } = shown;
  const result = results.get(use.id);
  const edited = live.edits.has(use.id);
  const call = live.calls.get(use.id);
  if (call === undefined)
    return <ToolCard use={use} result={result} state={live.tools.get(use.id)} edited={edited} partial={partial} />;
  const node = live.nodes.find(({ session_id }) => session_id === call.worker_session_id) ?? null;
  const executed = edited && result !== undefined && executedInput(use.input, result);
  return (
    <DelegationCard
      use={{ ...use, input: { ...(executed || use.input) } }}
      call={call}
      calls={live.calls}
      node={node}
      inclusive={node && costWithWorkers(live.nodes, node)}
      delivered_at={shown.deliveries.get(use.id) ?? null}
      route={[...live.routes].find(([turnId]) => turnId === node?.turn_id)?.[1]}
    />
  );
}

function OpenMessageItem({ message, shown }: { readonly message: OpenMessage; readonly shown: Shown }) {
  const content = message.content.filter((block) => block !== undefined);
  return (
    <div class="message assistant open">
      {content.length === 0 && <p class="quiet thinking-now">Thinking…</p>}
      <Blocks content={content} shown={shown} partial={message.partial} />
    </div>
  );
}

function Thinking({ text }: { readonly text: string }) {
  return (
    <details class="thinking">
      <summary>Thinking</summary>
      <Clipped text={text}>{(shown) => <div class="prose quiet">{shown}</div>}</Clipped>
    </details>
  );
}

function OtherBlock({ block }: { readonly block: Block }) {
  if (block.type === 'image') return <MessageImage data={block.source.data} mediaType={block.media_type} />;
  if (block.type === 'document') return <p class="quiet">[document: {block.name}]</p>;
  if (block.type === 'redacted_thinking') return <p class="quiet">[thinking that the provider redacted]</p>;
  return null;
}
