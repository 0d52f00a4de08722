// How to connect each kind of client to a server, as text that can be copied (19).

export interface Snippet {
  readonly name: string;
  /** Where the text belongs. */
  readonly note: string;
  readonly text: string;
}

/**
 * @param address of the server, without a slash at its end
 * @param hasToken the server requires a token: it is read from `METIS_TOKEN`, and never written into a snippet
 */
export function listSnippets(address: string, hasToken: boolean): readonly Snippet[] {
  const curlToken = hasToken ? ` \\\n  -H "Authorization: Bearer $METIS_TOKEN"` : '';
  const curl = (place: string, headers: string, body: string) =>
    `curl -s ${address}${place} -H 'content-type: application/json'${headers}${curlToken} \\\n  -d ${body}`;
  return [
    {
      name: 'Claude Code',
      note: 'In a terminal. The key of Anthropic stays with the server.',
      text: `ANTHROPIC_BASE_URL=${address} ANTHROPIC_AUTH_TOKEN=${hasToken ? '$METIS_TOKEN' : 'metis'} claude`,
    },
    {
      name: 'Codex',
      note: 'In ~/.codex/config.toml.',
      text: [
        'model_provider = "metis"',
        // Nothing bounds its cost, so under a cap every call that offers it is refused.
        'web_search = "disabled"',
        '[model_providers.metis]',
        'name = "Metis"',
        `base_url = "${address}/v1"`,
        'wire_api = "responses"',
        ...(hasToken ? ['env_key = "METIS_TOKEN"'] : []),
      ].join('\n'),
    },
    {
      name: 'curl',
      note: 'In a terminal, in the folder of a project. Opens a session with a cap of $1 and delegates a task.',
      text: [
        `S=$(${curl('/sessions', '', '"{\\"workspace_path\\": \\"$PWD\\", \\"max_cost_usd\\": \\"1\\"}"')} | sed 's/.*"id":"\\([^"]*\\)".*/\\1/')`,
        curl(
          '/sessions/$S/delegations',
          " -H 'Prefer: wait=60'",
          `'{"tier": "fast", "task": "Say in one sentence what this project is."}'`,
        ),
      ].join('\n'),
    },
    {
      name: 'MCP',
      note: 'In the MCP settings of an agent. Adapt the path of the project.',
      text: formatJson({
        mcpServers: {
          metis: {
            url: `${address}/mcp?workspace=/path/of/the/project&budget_usd=1.00`,
            ...(hasToken && { headers: { Authorization: 'Bearer $' + '{METIS_TOKEN}' } }),
          },
        },
      }),
    },
    {
      name: 'ACP',
      note: 'In the settings of an editor such as Zed.',
      text: formatJson({
        agent_servers: {
          Metis: {
            command: 'metis',
            args: ['acp', '--server', address],
            ...(hasToken && { env: { METIS_TOKEN: 'YOUR_TOKEN' } }),
          },
        },
      }),
    },
    {
      name: 'Demo',
      note: 'In a terminal. Simulated models do an example task on a server of their own; nothing is spent.',
      text: 'metis demo --keep',
    },
  ];
}

function formatJson(value: unknown): string {
  return JSON.stringify(value, null, 2);
}
