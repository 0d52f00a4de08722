// Tools of MCP servers that are left out, and servers that do not answer.
import { useApi } from '#dashboard/data/api.ts';
import { usePolled } from '#dashboard/data/polled.ts';
import { plural } from '#dashboard/format/number.ts';
import { Badge } from '#dashboard/parts/badge.tsx';

const EVERY_MS = 10_000;
const SHOWN = 50;

/** Nothing where all is well. */
export function ToolProblems({ workspace }: { readonly workspace: string }) {
  const { client } = useApi();
  const list = usePolled((signal) => client.listTools({ workspace_path: workspace }, { signal }), workspace, EVERY_MS);
  const problems = list.data?.problems ?? [];
  if (problems.length === 0) return null;
  return (
    <section class="panel problems" aria-label="MCP servers">
      <header>
        <h2>MCP servers</h2>
        <Badge tone="warn">{plural(problems.length, 'warning')}</Badge>
      </header>
      <ul>
        {problems.slice(0, SHOWN).map(({ mcp_server, message }) => (
          <li key={`${mcp_server} ${message}`}>
            <Badge tone="warn">warning</Badge> <code>{mcp_server ?? '.mcp.json'}</code> {message}
          </li>
        ))}
      </ul>
      {problems.length > SHOWN && <p class="panel-foot quiet">and {plural(problems.length - SHOWN, 'more')}</p>}
    </section>
  );
}
