// How a session came in: the door, the client behind it, and the key of its calls (19 §1). Of the plain API nothing is said.
import type { Session } from '#client/client.ts';
import { Badge } from './badge.tsx';

export const DOOR_NAMES: Readonly<Record<Session['door'], string>> = {
  api: 'API',
  gateway: 'Gateway',
  mcp: 'MCP',
  acp: 'ACP',
};

/** In a list: the client's own name, else the door's. */
export function DoorBadge({ session }: { readonly session: Session }) {
  const { door, client } = session;
  if (client === null && door === 'api') return null;
  return (
    <span class="door" title={factsOf(session).join(', ')}>
      <Badge>{client ?? DOOR_NAMES[door]}</Badge>
    </span>
  );
}

/** On the session's own page: all that is known. */
export function DoorFacts({ session }: { readonly session: Session }) {
  const facts = factsOf(session);
  if (facts.length === 0) return null;
  return (
    <>
      {facts.map((fact) => (
        <span key={fact} class="door" title={fact}>
          {fact}
        </span>
      ))}
    </>
  );
}

function factsOf({ door, client, caller }: Session): readonly string[] {
  return [
    ...(door === 'api' ? [] : [`Door ${DOOR_NAMES[door]}`]),
    ...(client === null ? [] : [`Client ${client}`]),
    ...(caller === '' ? [] : [`Caller ${caller}`]),
  ];
}
