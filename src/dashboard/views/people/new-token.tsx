// Makes a token: its name, role, limits and expiry; its secret is shown once (23 §2).
import { useId, useState } from 'preact/hooks';
import type { MadeToken } from '#client/client.ts';
import { explain, listIssues, useApi } from '#dashboard/data/api.ts';
import { useRequest } from '#dashboard/data/use-request.ts';
import { CopyButton } from '#dashboard/parts/copy-button.tsx';
import { CapField, parseCap } from '#dashboard/parts/fields.tsx';
import { Dialog } from '#dashboard/parts/panels.tsx';
import { systemClock } from '#protocol/clock.ts';
import type { Role } from '#protocol/people/person.ts';

const ROLES: readonly { readonly value: Role; readonly label: string }[] = [
  { value: 'viewer', label: 'Viewer: reads' },
  { value: 'member', label: 'Member: also works in own and shared sessions' },
  { value: 'admin', label: 'Admin: everything' },
];
const DAY_MS = 86_400_000;
const LIVES = [
  { value: '30', label: '30 days' },
  { value: '90', label: '90 days' },
  { value: '365', label: 'One year' },
  { value: '', label: 'Never expires' },
] as const;

export function NewToken({ onClose }: { readonly onClose: () => void }) {
  const [made, setMade] = useState<MadeToken | null>(null);
  return (
    <Dialog title={made === null ? 'New token' : `Token of ${made.name}`} onClose={onClose}>
      {made === null && <TokenForm onMade={setMade} onClose={onClose} />}
      {made !== null && <Secret made={made} onClose={onClose} />}
    </Dialog>
  );
}

function TokenForm(props: { readonly onMade: (made: MadeToken) => void; readonly onClose: () => void }) {
  const { client } = useApi();
  const { busy, error, send } = useRequest();
  const [name, setName] = useState('');
  const [role, setRole] = useState<Role>('member');
  const [days, setDays] = useState<string>('90');
  const [daily, setDaily] = useState('');
  const [monthly, setMonthly] = useState('');
  const [folders, setFolders] = useState('');
  const id = useId();
  const create = async () => {
    const workspaces = folders.split('\n').flatMap((line) => line.trim() || []);
    props.onMade(
      await client.createToken({
        name: name.trim(),
        role,
        daily_usd: parseCap(daily),
        monthly_usd: parseCap(monthly),
        workspaces: workspaces.length === 0 ? null : workspaces,
        expires_at: days === '' ? null : new Date(systemClock.now() + Number(days) * DAY_MS).toISOString(),
      }),
    );
  };
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        void send(create);
      }}
    >
      <div>
        <label for={`${id}-name`}>Name</label>
        <input
          id={`${id}-name`}
          required
          maxLength={64}
          pattern="[A-Za-z0-9_\-]{1,64}"
          title="Letters, digits, _ and -"
          autoComplete="off"
          spellcheck={false}
          value={name}
          onInput={(event) => setName(event.currentTarget.value)}
        />
      </div>
      <div class="field-row">
        <div>
          <label for={`${id}-role`}>Role</label>
          <select id={`${id}-role`} value={role} onChange={(event) => setRole(event.currentTarget.value as Role)}>
            {ROLES.map(({ value, label }) => (
              <option key={value} value={value}>
                {label}
              </option>
            ))}
          </select>
        </div>
        <div>
          <label for={`${id}-days`}>Expires after</label>
          <select id={`${id}-days`} value={days} onChange={(event) => setDays(event.currentTarget.value)}>
            {LIVES.map(({ value, label }) => (
              <option key={value} value={value}>
                {label}
              </option>
            ))}
          </select>
        </div>
      </div>
      <div class="field-row">
        <div>
          <label for={`${id}-daily`}>Daily limit in US dollars</label>
          <CapField id={`${id}-daily`} value={daily} onValue={setDaily} placeholder="none" />
        </div>
        <div>
          <label for={`${id}-monthly`}>Monthly limit in US dollars</label>
          <CapField id={`${id}-monthly`} value={monthly} onValue={setMonthly} placeholder="none" />
        </div>
      </div>
      <div>
        <label for={`${id}-folders`}>Workspaces</label>
        <textarea
          id={`${id}-folders`}
          rows={2}
          placeholder="All. To narrow it: one folder per line"
          spellcheck={false}
          value={folders}
          onInput={(event) => setFolders(event.currentTarget.value)}
        />
      </div>
      {error !== null && (
        <div class="field-error" role="alert">
          <p>{explain(error)}</p>
          {listIssues(error).map(({ path, message }) => (
            <p key={`${path} ${message}`}>
              <code>{path}</code> {message}
            </p>
          ))}
        </div>
      )}
      <div class="dialog-actions">
        <button type="button" class="button" onClick={props.onClose}>
          Cancel
        </button>
        <button type="submit" class="button primary" disabled={busy || name.trim() === ''}>
          Make the token
        </button>
      </div>
    </form>
  );
}

function Secret({ made, onClose }: { readonly made: MadeToken; readonly onClose: () => void }) {
  return (
    <div class="dialog-body">
      <p>Copy the token now. The server stores its digest alone and cannot show it again.</p>
      <p class="secret">
        <code>{made.secret}</code>
        <CopyButton text={made.secret} name="Copy the token" />
      </p>
      <div class="dialog-actions">
        <button type="button" class="button primary" onClick={onClose}>
          Done
        </button>
      </div>
    </div>
  );
}
