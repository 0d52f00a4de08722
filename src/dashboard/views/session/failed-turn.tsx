// A turn that failed: on which provider and model, after how many attempts, with which error, and once more.
import { useEffect, useState } from 'preact/hooks';
import type { MetisClient, Session } from '#client/client.ts';
import type { LoggedEvent } from '#client/stream-items.ts';
import { May, useApi } from '#dashboard/data/api.ts';
import { useRequest } from '#dashboard/data/use-request.ts';
import { formatCount, modelName, visible } from '#dashboard/format/format.ts';
import { Icon, Time } from '#dashboard/parts/labels.tsx';
import { Clipped, RequestError } from '#dashboard/parts/panels.tsx';

type Failure = NonNullable<Session['failure']>;
type FailedCall = Extract<LoggedEvent, { type: 'llm.call_failed' }>['payload'];

const MOST_ATTEMPTS = 50;
/** What a reader of the error can do about it. */
const ADVICE: Readonly<Partial<Record<NonNullable<Failure['error_class']>, string>>> = {
  auth: 'The provider does not accept the key. Correct it, restart the server, then retry. “metis doctor --online” checks the key.',
  rate_limit: 'The provider limits requests. Try again later, or choose another model.',
};

export function FailedTurn(props: {
  readonly session: Session;
  readonly failure: Failure;
  readonly onChanged: () => void;
}) {
  const { session, failure } = props;
  const calls = useFailedCalls(session.id, failure);
  const attempts = calls.reduce((sum, { retry_count }) => sum + 1 + retry_count, 0);
  const message = failure.message ?? failure.error_code ?? 'The turn failed.';
  return (
    <section class="failed-turn" aria-label="Failed turn">
      <Icon name="alert" />
      <div>
        <p>
          <strong>The last turn failed</strong> <span class="quiet">{describeOrigin(failure)}</span>{' '}
          <span class="quiet">
            {attempts > 0 && `after ${formatCount(attempts, 'attempt')}, `}
            <Time at={failure.failed_at} />
          </span>
        </p>
        <Clipped text={message}>{(shown) => <p class="failed-message">{visible(shown)}</p>}</Clipped>
        {failure.error_class !== null && ADVICE[failure.error_class] && (
          <p class="quiet">{ADVICE[failure.error_class]}</p>
        )}
        {calls.length > 1 && <FailedCalls calls={calls} />}
      </div>
      {!session.is_worker && session.door !== 'gateway' && (
        <May operation="submitTurn">
          <Retry {...props} />
        </May>
      )}
    </section>
  );
}

/** `auth error of anthropic on claude-haiku-4-5` */
function describeOrigin({ error_class, provider, model }: Failure): string {
  const parts: string[] = [];
  if (error_class !== null) parts.push(`${error_class.replaceAll('_', ' ')} error`);
  if (provider !== null) parts.push(`of ${provider}`);
  if (model !== null) parts.push(`on ${modelName(model)}`);
  return parts.join(' ');
}

/** Where the turn tried one model after the other. */
function FailedCalls({ calls }: { readonly calls: readonly FailedCall[] }) {
  return (
    <details data-scrolls>
      <summary>{formatCount(calls.length, 'failed call')}</summary>
      <ol class="attempts">
        {calls.map((one) => (
          <li key={one.request_id}>
            <code>{one.model}</code> {one.error_class.replaceAll('_', ' ')}: {visible(one.error_message_redacted)}
          </li>
        ))}
      </ol>
    </details>
  );
}

function isFailedCall(event: LoggedEvent): event is Extract<LoggedEvent, { type: 'llm.call_failed' }> {
  return event.type === 'llm.call_failed';
}

/** The failed calls of the turn, as far as their events are kept. */
function useFailedCalls(sessionId: string, { turn_id }: Failure): readonly FailedCall[] {
  const { client, reportFailure } = useApi();
  const [calls, setCalls] = useState<readonly FailedCall[]>([]);
  useEffect(() => {
    const gone = new AbortController();
    const query = { types: ['llm.call_failed'] as const, since: turn_id, limit: MOST_ATTEMPTS };
    client.listEvents(sessionId, query, { signal: gone.signal }).then(
      ({ events }) => setCalls(events.filter(isFailedCall).flatMap(({ payload }) => payload)),
      (error) => gone.signal.aborted || reportFailure(error),
    );
    return () => gone.abort();
  }, [client, reportFailure, sessionId, turn_id]);
  return calls;
}

/** Sends the message of the failed turn again, as a new turn. */
function Retry({ session, failure, onChanged }: Parameters<typeof FailedTurn>[0]) {
  const { client } = useApi();
  const { busy, error, send } = useRequest();
  const retry = async () => {
    const isSent = await send(async () =>
      client.submitTurn(session.id, { content: await readMessage(client, session.id, failure.turn_id) }),
    );
    if (isSent) onChanged();
  };
  return (
    <div class="failed-actions">
      <button type="button" class="button primary" disabled={busy} onClick={() => void retry()}>
        Retry
      </button>
      <RequestError error={error} />
    </div>
  );
}

async function readMessage(client: MetisClient, sessionId: string, turnId: string): Promise<string> {
  const { user_message_id } = await client.getTurn(sessionId, turnId);
  const { messages } = await client.listMessages(sessionId, { limit: 200 });
  const message = messages.find(({ id }) => id === user_message_id);
  const text = message?.content.flatMap((block) => (block.type === 'text' ? block.text : [])).join('\n') ?? '';
  if (text === '') throw new Error('The message of this turn has no text. Write it again below.');
  return text;
}
