// The first steps with this server: which provider keys it found, and how to connect each kind of client (17 §3).
import type { SettingsReport } from '#client/client.ts';
import { useApi, useMay } from '#dashboard/data/api.ts';
import { usePolled } from '#dashboard/data/queries.ts';
import { Badge } from '#dashboard/parts/labels.tsx';
import { CodeBlock } from '#dashboard/parts/markdown.tsx';
import { Failure, Skeleton } from '#dashboard/parts/panels.tsx';
import { formatPlace } from '#dashboard/shell/place.ts';
import { listSnippets } from './snippets.ts';

const EVERY_MS = 10_000;

export function StartGuide() {
  const { address, hasToken } = useApi();
  const mayReadKeys = useMay()('getSettings');
  return (
    <div class="guide">
      {mayReadKeys && <ProviderKeys />}
      <section class="panel" aria-label="Connect a client">
        <header>
          <h2>{mayReadKeys ? '2. Connect a client' : 'Connect a client'}</h2>
        </header>
        <p class="panel-note quiet">
          Each snippet holds the address of this server. The first session appears in the overview.
        </p>
        <div class="snippets">
          {listSnippets(address, hasToken).map(({ name, note, text }) => (
            <div key={name} class="snippet">
              <h3>{name}</h3>
              <p class="quiet">{note}</p>
              <CodeBlock text={text} name={name} />
            </div>
          ))}
        </div>
        <p class="panel-note quiet">
          No client at hand? Open a session under <a href={formatPlace('sessions')}>Sessions</a>.{' '}
          <a href={formatPlace('help', 'doors')}>More about clients</a>
        </p>
      </section>
    </div>
  );
}

function ProviderKeys() {
  const { client } = useApi();
  const { data, error, reload } = usePolled((signal) => client.getSettings({ signal }), 'guide', EVERY_MS);
  return (
    <section class="panel" aria-label="Provider keys">
      <header>
        <h2>1. Provider keys</h2>
      </header>
      {error !== null && <Failure error={error} title="The keys could not be listed" retry={reload} />}
      {data === null && error === null && <Skeleton rows={3} />}
      {data !== null && <Keys settings={data} />}
    </section>
  );
}

export function Keys({ settings }: { readonly settings: SettingsReport }) {
  const { keys, keys_file } = settings;
  const [missing] = keys.filter(({ source, required }) => source === null && required);
  const hasModel = keys.some(({ source, required }) => source !== null || !required);
  return (
    <>
      <ul class="key-list">
        {keys.map((key) => (
          <li key={key.provider}>
            <strong>{key.provider}</strong> <code>{key.variable}</code> <KeyState {...key} />
          </li>
        ))}
        {keys.length === 0 && <li class="quiet">The registry of this server has scripted models only.</li>}
      </ul>
      {!hasModel && keys.length > 0 && (
        <p class="panel-note">No key was found. Simulated models answer from a script until the server has one.</p>
      )}
      {missing !== undefined && (
        <div class="snippet">
          <p class="quiet">
            To set a key, write it to <code>{keys_file}</code> or to the environment of the server, and restart the
            server.
          </p>
          <CodeBlock text={composeKeyCommand(missing.variable, keys_file)} name="Set a key" />
        </div>
      )}
    </>
  );
}

function KeyState({ source, required }: SettingsReport['keys'][number]) {
  if (source !== null)
    return (
      <>
        <Badge tone="ok">found</Badge> <span class="quiet">{source}</span>
      </>
    );
  if (!required) return <Badge>not needed</Badge>;
  return <Badge>not found</Badge>;
}

function composeKeyCommand(variable: string, file: string): string {
  const quoted = `'${file.replaceAll("'", `'\\''`)}'`;
  return `echo '${variable}=YOUR_KEY' >> ${quoted}\nchmod 600 ${quoted}`;
}
