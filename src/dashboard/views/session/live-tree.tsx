// Planner and workers side by side: what each writes and runs at this moment, for how long and for how much.
import { Badge, Count, Elapsed, isScripted, ModelName, Money, Simulated, State } from '#dashboard/parts/labels.tsx';
import { Empty } from '#dashboard/parts/panels.tsx';
import { formatPlace } from '#dashboard/shell/place.ts';
import { fromPusd } from '#protocol/money.ts';
import { CancelWorker } from './delegation-card.tsx';
import { costWithWorkers, type LiveNode, type LiveSession } from './live/live-node.ts';

/** More of a task than two lines can hold. */
const TASK = 600;

export function LiveTree({ live }: { readonly live: LiveSession }) {
  if (live.nodes.length === 0)
    return (
      <Empty icon="worker" title="Nothing runs yet">
        <p>The planner appears here with its first message, and each worker beside it when it begins.</p>
      </Empty>
    );
  return (
    <section class="live-tree" aria-label="Live tree" tabIndex={0}>
      {live.nodes.map((node) => (
        <Pane key={node.session_id} node={node} nodes={live.nodes} task={findNodeTask(live, node)} />
      ))}
    </section>
  );
}

function Pane(props: { readonly node: LiveNode; readonly nodes: readonly LiveNode[]; readonly task: string | null }) {
  const { node, nodes, task } = props;
  const inclusive = node.is_worker ? costWithWorkers(nodes, node) : null;
  const under = node.depth > 1 ? nodes.find(({ session_id }) => session_id === node.parent_session_id) : undefined;
  const running = node.ended_at === null;
  return (
    <article class={node.is_worker ? 'pane worker' : 'pane planner'} aria-label={node.label}>
      <header>
        <a href={formatPlace('sessions', node.session_id)}>{node.label}</a>
        {under !== undefined && <span class="quiet pane-under">of {under.label}</span>}
        {node.tier !== null && <Badge tone="worker">{node.tier}</Badge>}
        <State state={node.state} />
        {isScripted(node.model) && <Simulated />}
        {running && node.is_worker && <CancelWorker sessionId={node.session_id} label={node.label} />}
      </header>
      <dl class="pane-facts">
        <div>
          <dt>Model</dt>
          <dd>
            <ModelName id={node.model} />
          </dd>
        </div>
        <div>
          <dt>Age</dt>
          <dd>
            <Elapsed from={node.started_at} to={node.ended_at} />
          </dd>
        </div>
        <div>
          <dt>Tokens</dt>
          <dd>
            <Count n={node.input_tokens + node.output_tokens} unit="token" rest=" in and out" />
          </dd>
        </div>
        <div>
          <dt>Cost</dt>
          <dd>
            <Money usd={fromPusd(node.cost)} />
          </dd>
        </div>
        {inclusive !== null && (
          <div>
            <dt>With workers</dt>
            <dd>
              <Money usd={fromPusd(inclusive)} />
            </dd>
          </div>
        )}
      </dl>
      {task !== null && <p class="pane-task">{task}</p>}
      <div class="pane-stream">
        <p>{node.tail}</p>
      </div>
      <footer class="pane-doing">{running ? node.doing || 'waiting' : ' '}</footer>
    </article>
  );
}

/** The beginning of the task that the planner gave it, from the call that opened it. */
export function findNodeTask(live: LiveSession, node: LiveNode): string | null {
  if (node.task !== null) return node.task.slice(0, TASK);
  const call = [...live.calls.values()].find(({ worker_session_id }) => worker_session_id === node.session_id);
  if (call === undefined) return null;
  for (const { content } of live.messages) {
    for (const block of content) {
      if (block.type !== 'tool_use' || block.id !== call.tool_use_id) continue;
      // A named worker's task is its `input`.
      const task = block.input.task ?? block.input.input;
      if (typeof task === 'string') return task.slice(0, TASK);
    }
  }
  return null;
}
