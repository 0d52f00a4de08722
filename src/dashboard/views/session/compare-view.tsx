// Two sessions side by side: what both begin with, and what each did and cost behind it (21 §4).
import type { ComponentChildren } from 'preact';
import type { Session, SessionComparison } from '#client/client.ts';
import { useApi } from '#dashboard/data/api.ts';
import { usePolled } from '#dashboard/data/queries.ts';
import { duration, exactUsd, formatCount, formatNumber } from '#dashboard/format/format.ts';
import { ModelName, Money } from '#dashboard/parts/labels.tsx';
import { Markdown } from '#dashboard/parts/markdown.tsx';
import { Clipped, Empty, Failure, Skeleton } from '#dashboard/parts/panels.tsx';
import { formatPlace } from '#dashboard/shell/place.ts';

type Side = SessionComparison['a'];
type Difference = NonNullable<SessionComparison['first_difference']>;

/** @param other the session to compare with; null = there is none */
export function CompareView({ session, other }: { readonly session: Session; readonly other: string | null }) {
  const { client } = useApi();
  const { data, error, reload } = usePolled(
    async (signal) => (other === null ? null : client.compareSessions(other, { with: session.id }, { signal })),
    `${session.id} ${other}`,
  );
  if (other === null)
    return (
      <Empty icon="branch" title="Nothing to compare with">
        <p>Branch from a message of this session; the branch is then compared with it here.</p>
      </Empty>
    );
  if (data === null && error !== null)
    return <Failure error={error} title="The sessions could not be compared" retry={reload} />;
  if (data === null) return <Skeleton rows={6} height={48} />;
  const { shared, a, b, first_difference: difference } = data;
  return (
    <section class="compare" aria-label="Comparison" tabIndex={0}>
      <p>
        Both begin with {formatCount(shared.messages, 'message')}; {formatCount(shared.calls, 'model call')} for them
        cost <strong class="number">{exactUsd(shared.cost_usd)}</strong> once.
      </p>
      <div class="compare-columns">
        <Column title={nameSide(session, a)} side={a} step={difference?.a} difference={difference} />
        <Column title={nameSide(session, b)} side={b} step={difference?.b} difference={difference} />
      </div>
    </section>
  );
}

function nameSide(session: Session, side: Side): string {
  if (side.session_id === session.id) return 'This session';
  if (side.session_id === session.forked_from?.session_id) return 'The original';
  return 'The other session';
}

function Column(props: {
  readonly title: string;
  readonly side: Side;
  readonly step: Difference['a'] | undefined;
  readonly difference: Difference | null;
}) {
  const { title, side, step, difference } = props;
  return (
    <section class="compare-column" aria-label={title}>
      <h2>
        <a href={formatPlace('sessions', side.session_id)}>{title}</a>
      </h2>
      <dl class="compare-facts">
        <Fact name="Model">{side.model === null ? 'none yet' : <ModelName id={side.model} />}</Fact>
        <Fact name="Cost">
          <Money usd={side.cost_usd} />
        </Fact>
        <Fact name="Model calls">{formatNumber(side.calls)}</Fact>
        <Fact name="Tool calls">{formatNumber(side.tool_calls)}</Fact>
        <Fact name="Workers">{formatNumber(side.workers)}</Fact>
        <Fact name="Input tokens">{formatNumber(side.input_tokens)}</Fact>
        <Fact name="Output tokens">{formatNumber(side.output_tokens)}</Fact>
        <Fact name="Time">{duration(side.wall_time_seconds * 1000)}</Fact>
        <Fact name="Changed files">{formatNumber(side.changed_files.length)}</Fact>
      </dl>
      {side.changed_files.length > 0 && (
        <ul class="compare-files">
          {side.changed_files.map(({ path, change }) => (
            <li key={path}>
              <code>{path}</code> <span class="quiet">{change}</span>
            </li>
          ))}
        </ul>
      )}
      {difference !== null && (
        <>
          <h3>First difference: message {formatNumber(difference.index + 1)} behind the shared ones</h3>
          {step == null ? (
            <p class="quiet">no message</p>
          ) : (
            <p class="prose">
              <span class="quiet">{step.role}:</span> {step.text}
            </p>
          )}
        </>
      )}
      <h3>Last answer</h3>
      {side.final_text === null ? (
        <p class="quiet">none yet</p>
      ) : (
        <Clipped text={side.final_text}>{(shown) => <Markdown text={shown} />}</Clipped>
      )}
    </section>
  );
}

function Fact({ name, children }: { readonly name: string; readonly children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
