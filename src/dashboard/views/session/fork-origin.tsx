// What a fork begins with: a link to the original, and its messages where a person asks for them (21 §4).
import { useState } from 'preact/hooks';
import type { Message, Session } from '#client/client.ts';
import { useApi } from '#dashboard/data/api.ts';
import { useRequest } from '#dashboard/data/use-request.ts';
import { Clipped, RequestError } from '#dashboard/parts/panels.tsx';
import { formatPlace } from '#dashboard/shell/place.ts';

const PAGE = 200;

export function ForkOrigin({ session }: { readonly session: Session }) {
  const { client } = useApi();
  const { busy, error, send } = useRequest();
  const [messages, setMessages] = useState<readonly Message[] | null>(null);
  const { forked_from: origin } = session;
  if (origin === null) return null;
  const load = () =>
    send(async () => setMessages((await client.listMessages(session.id, { prefix: true, limit: PAGE })).messages));
  return (
    <section class="task" aria-label="Branch">
      <h2>
        Branched from <a href={formatPlace('sessions', origin.session_id)}>another session</a>
      </h2>
      {messages === null && (
        <button type="button" class="button ghost" disabled={busy} onClick={() => void load()}>
          Show the messages before the branch
        </button>
      )}
      <RequestError error={error} />
      {messages?.map((message) => (
        <Earlier key={message.id} message={message} />
      ))}
    </section>
  );
}

function Earlier({ message }: { readonly message: Message }) {
  const text = message.content
    .map((block) => {
      if (block.type === 'text') return block.text;
      if (block.type === 'tool_use') return `[${block.name}]`;
      return '';
    })
    .filter((line) => line !== '')
    .join('\n');
  if (text === '') return null;
  return (
    <div class="earlier">
      <span class="quiet">{message.role === 'user' ? 'You' : 'Answer'}</span>
      <Clipped text={text}>{(shown) => <div class="prose">{shown}</div>}</Clipped>
    </div>
  );
}
