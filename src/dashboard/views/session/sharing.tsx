// Whose session it is and who else sees it, and where its owner or an admin changes that (23 §1).
import { useId, useState } from 'preact/hooks';
import type { Session, SessionChange } from '#client/client.ts';
import { May, readOwnership, toPerson, useApi, useOwnToken } from '#dashboard/data/api.ts';
import { usePolled } from '#dashboard/data/queries.ts';
import { useRequest } from '#dashboard/data/use-request.ts';
import { emptyToNull } from '#dashboard/format/format.ts';
import { Badge } from '#dashboard/parts/labels.tsx';
import { Dialog, RequestError } from '#dashboard/parts/panels.tsx';
import type { Share } from '#protocol/people/person.ts';
import { canShare } from '#protocol/people/rights.ts';

export const SHARES: readonly { readonly value: Share; readonly word: string; readonly label: string }[] = [
  { value: 'private', word: 'private', label: 'Private: its owner and admins see it' },
  { value: 'read', word: 'all may read', label: 'Read: all may read it' },
  { value: 'write', word: 'members may write', label: 'Write: members may also work in it' },
];

/** The owner, and whether the session is shared otherwise than for reading. */
export function OwnerFacts({ session }: { readonly session: Session }) {
  const own = useOwnToken();
  const { owner, share } = session;
  return (
    <>
      {owner != null && owner.id !== own.token?.id && <span title={`Owner: ${owner.name}`}>Owner: {owner.name}</span>}
      {share !== undefined && share !== 'read' && <Badge>{SHARES.find(({ value }) => value === share)?.word}</Badge>}
    </>
  );
}

/** Nothing for a person who may not share the session, or where no token is required. */
export function Sharing({ session, onChanged }: { readonly session: Session; readonly onChanged: () => void }) {
  const own = useOwnToken();
  const [open, setOpen] = useState(false);
  if (!own.required || session.is_worker || !canShare(toPerson(own), readOwnership(session))) return null;
  return (
    <>
      <button type="button" class="button ghost" aria-haspopup="dialog" onClick={() => setOpen(true)}>
        Share
      </button>
      {open && (
        <ShareDialog
          session={session}
          onClose={() => setOpen(false)}
          onSaved={() => {
            setOpen(false);
            onChanged();
          }}
        />
      )}
    </>
  );
}

function ShareDialog(props: { readonly session: Session; readonly onClose: () => void; readonly onSaved: () => void }) {
  const { session, onClose, onSaved } = props;
  const { client } = useApi();
  const { busy, error, send } = useRequest();
  const before = readOwnership(session);
  const [share, setShare] = useState(before.share);
  const [owner, setOwner] = useState(before.owner);
  const field = useId();
  const save = async () => {
    const change: SessionChange = {
      ...(share !== before.share && { share }),
      ...(owner !== before.owner && { owner }),
    };
    const isSaved = await send(() => client.updateSession(session.id, change));
    if (isSaved) onSaved();
  };
  return (
    <Dialog title="Share the session" onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void save();
        }}
      >
        <div>
          <label for={field}>Who else may use it</label>
          <select id={field} value={share} onChange={(event) => setShare(event.currentTarget.value as Share)}>
            {SHARES.map(({ value, label }) => (
              <option key={value} value={value}>
                {label}
              </option>
            ))}
          </select>
        </div>
        <May operation="listTokens">
          <OwnerChoice owner={owner} known={session.owner ?? null} onOwner={setOwner} />
        </May>
        <RequestError error={error} />
        <div class="dialog-actions">
          <button type="button" class="button" onClick={onClose}>
            Cancel
          </button>
          <button
            type="submit"
            class="button primary"
            disabled={busy || (share === before.share && owner === before.owner)}
          >
            Save
          </button>
        </div>
      </form>
    </Dialog>
  );
}

const TOKENS_MS = 60_000;

/** To whom an admin gives the session: a token that is not revoked. */
function OwnerChoice(props: {
  readonly owner: string | null;
  /** The owner as stored, who may be revoked. */
  readonly known: { readonly id: string; readonly name: string } | null;
  readonly onOwner: (owner: string | null) => void;
}) {
  const { owner, known, onOwner } = props;
  const { client } = useApi();
  const { data } = usePolled((signal) => client.listTokens({ signal }), 'owners', TOKENS_MS);
  const usable = data?.tokens.filter(({ revoked_at, id }) => revoked_at === null && id !== known?.id) ?? [];
  const id = useId();
  return (
    <div>
      <label for={id}>Owner</label>
      <select id={id} value={owner ?? ''} onChange={(event) => onOwner(emptyToNull(event.currentTarget.value))}>
        <option value="">No owner</option>
        {[...(known === null ? [] : [known]), ...usable].map((token) => (
          <option key={token.id} value={token.id}>
            {token.name}
          </option>
        ))}
      </select>
    </div>
  );
}
