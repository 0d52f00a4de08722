// Files of a workspace that count only while a person trusts their bytes, and what changed since one did (20 §11).
import { useState } from 'preact/hooks';
import type { TrustedFileInfo } from '#client/client.ts';
import { explain, May, useApi } from '#dashboard/data/api.ts';
import { isWaitingForTrust, usePolled } from '#dashboard/data/queries.ts';
import { useRequest } from '#dashboard/data/use-request.ts';
import { formatCount } from '#dashboard/format/format.ts';
import { Diff } from '#dashboard/parts/diff.tsx';
import { Badge, Time, type Tone } from '#dashboard/parts/labels.tsx';
import { Failure, RequestError } from '#dashboard/parts/panels.tsx';

const EVERY_MS = 10_000;

/** Nothing where no file is trusted and none waits. */
export function TrustPanel({ workspace }: { readonly workspace: string }) {
  const { client } = useApi();
  const list = usePolled(
    (signal) => client.listTrustedFiles({ workspace_path: workspace }, { signal }),
    workspace,
    EVERY_MS,
  );
  if (list.data === null && list.error !== null)
    return <Failure error={list.error} title="The trusted files could not be loaded" retry={list.reload} />;
  const waiting = list.data?.files.filter(isWaitingForTrust) ?? [];
  const others = list.data?.files.filter((file) => !isWaitingForTrust(file)) ?? [];
  if (waiting.length + others.length === 0) return null;
  return (
    <section class="panel problems" aria-label="Trusted files">
      <header>
        <h2>Trusted files</h2>
        {waiting.length > 0 && <Badge tone="warn">{formatCount(waiting.length, 'file')} to review</Badge>}
      </header>
      <ul>
        {[...waiting, ...others].map((file) => (
          <TrustRow key={file.path} workspace={workspace} file={file} onChanged={list.reload} />
        ))}
      </ul>
    </section>
  );
}

function describeTrust({ trusted, sha256, trusted_sha256 }: TrustedFileInfo): readonly [string, Tone] {
  if (trusted) return ['trusted', 'ok'];
  if (sha256 === null) return ['missing', 'plain'];
  if (trusted_sha256 !== null) return ['changed since it was trusted', 'warn'];
  return ['not trusted', 'warn'];
}

interface Row {
  readonly workspace: string;
  readonly file: TrustedFileInfo;
  readonly onChanged: () => void;
}

function TrustRow({ workspace, file, onChanged }: Row) {
  const { client } = useApi();
  const { busy, error, send } = useRequest();
  const [word, tone] = describeTrust(file);
  const about = { workspace_path: workspace, path: file.path };
  // After a refusal the file has changed: the list is asked for what it is now.
  const change = async (request: () => Promise<unknown>) => {
    await send(request);
    onChanged();
  };
  return (
    <li>
      <Badge tone={tone}>{word}</Badge> <code>{file.path}</code>{' '}
      {file.trusted_at !== null && (
        <span class="quiet">
          trusted <Time at={file.trusted_at} />
        </span>
      )}
      {file.widens.map((one) => (
        <p key={one}>{one}</p>
      ))}
      {file.sha256 !== null && (
        <Content
          key={file.sha256}
          workspace={workspace}
          file={file}
          busy={busy}
          onTrust={(sha256) => void change(() => client.trustFile({ ...about, sha256 }))}
        />
      )}
      {file.trusted_sha256 !== null && (
        <May operation="untrustFile">
          <p>
            <button
              type="button"
              class="button"
              disabled={busy}
              onClick={() => void change(() => client.untrustFile(about))}
            >
              Revoke trust
            </button>
          </p>
        </May>
      )}
      <RequestError error={error} />
    </li>
  );
}

/** The file as lines, against the text that was trusted. The bytes that are shown are those that the button trusts. */
function Content(props: {
  readonly workspace: string;
  readonly file: TrustedFileInfo;
  readonly busy: boolean;
  readonly onTrust: (sha256: string) => void;
}) {
  const { workspace, file, busy, onTrust } = props;
  const { client, reportFailure } = useApi();
  const [shown, setShown] = useState<TrustedFileInfo | null>(null);
  const [failure, setFailure] = useState<unknown>(null);
  const loadContent = async () => {
    if (shown !== null) return;
    try {
      const [found] = (await client.listTrustedFiles({ workspace_path: workspace, path: file.path })).files;
      setShown(found ?? null);
    } catch (reason) {
      reportFailure(reason);
      setFailure(reason);
    }
  };
  const isChanged = file.trusted_sha256 !== null && !file.trusted;
  return (
    <details onToggle={(event) => event.currentTarget.open && void loadContent()}>
      <summary>{file.trusted ? 'Content' : `Review ${isChanged ? 'what changed' : 'the content'} to trust it`}</summary>
      {shown === null && failure === null && <p class="quiet">Loading…</p>}
      {failure !== null && <p class="field-error">{explain(failure)}</p>}
      {shown !== null && (
        <>
          {isChanged && shown.trusted_content == null && (
            <p class="quiet">The text that was trusted is not stored. This is the whole file.</p>
          )}
          <Diff
            name={`Content of ${file.path}`}
            head={file.path}
            old={shown.trusted ? (shown.content ?? null) : (shown.trusted_content ?? null)}
            fresh={shown.content ?? ''}
          />
        </>
      )}
      {shown !== null && shown.sha256 !== null && !shown.trusted && (
        <May operation="trustFile">
          <button type="button" class="button primary" disabled={busy} onClick={() => onTrust(shown.sha256 ?? '')}>
            Trust this content
          </button>
        </May>
      )}
    </details>
  );
}
