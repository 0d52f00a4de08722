// What `metis doctor` says about MCP servers: which are configured, and whether their programs are there (17 §2).
import fs from 'node:fs';
import path from 'node:path';
import type { Config } from '#protocol/config.ts';
import type { McpServerConfig } from '#protocol/mcp.ts';

export interface McpLine {
  readonly usable: boolean;
  readonly text: string;
}

/** One line a server. Arguments, headers and what follows an address's host are not shown: they may hold secrets. */
export function checkMcpServers({ mcp, mcp_servers }: Config, searchPath: string | undefined): McpLine[] {
  const lines = Object.entries(mcp_servers).map(([name, server]) => describeMcpServer(name, server, searchPath ?? ''));
  if (mcp.project_files)
    lines.push({ usable: true, text: 'the .mcp.json of a workspace is read, and starts the programs it names' });
  return lines;
}

function describeMcpServer(name: string, { enabled, url, command = '' }: McpServerConfig, searchPath: string): McpLine {
  const about = `MCP server ${name}`;
  if (enabled === false) return { usable: true, text: `${about} is switched off` };
  if (url !== undefined)
    return {
      usable: true,
      text: `${about} at ${URL.canParse(url) ? new URL(url).origin : 'an address with variables'}`,
    };
  if (command.includes('${')) return { usable: true, text: `${about} runs a command with variables` };
  // A relative one is looked for in each workspace.
  const found = command.includes('/')
    ? !path.isAbsolute(command) || isProgram(command)
    : searchPath.split(path.delimiter).some((folder) => isProgram(path.join(folder, command)));
  if (found) return { usable: true, text: `${about} runs ${command}` };
  return { usable: false, text: `${about}: ${command} is not there; install it or change mcp_servers.${name}.command` };
}

function isProgram(file: string): boolean {
  try {
    fs.accessSync(file, fs.constants.X_OK);
    return fs.statSync(file).isFile();
  } catch {
    return false;
  }
}
