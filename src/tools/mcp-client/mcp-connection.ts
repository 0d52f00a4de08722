// One connection to an MCP server through the official client: handshake, list, call (09 §11).

import path from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Transport } from '@modelcontextprotocol/client';
import { z } from 'zod';
import { MAX_MCP_TOOLS } from '#core/policy/mcp/listed-tools.ts';
import type { Clock } from '#protocol/clock.ts';
import { readErrorMessage } from '#protocol/text/error-message.ts';
import { flattenText } from '#protocol/text/plain-text.ts';
import { guardedFetch } from './http-transport.ts';
import type { OnFault } from './message-limits.ts';
import { type StdioOptions, stdioTransport } from './stdio-transport.ts';

/** Disables the library's own timeout. */
const NO_LIMIT_MS = 2 ** 31 - 1;
const FAREWELL_MS = 2000;
const MAX_PAGES = 100;
const MAX_REASON = 300;
/** Maximum pending answers to a server's requests: a server that does not read them would fill the memory. */
const MAX_ANSWERS = 100;

// Entries are checked one by one later: one invalid entry must not invalidate the others.
const ToolPageSchema = z.object({ tools: z.array(z.unknown()), nextCursor: z.string().optional() });
const CallResultSchema = z.object({
  content: z.array(z.unknown()).default([]),
  structuredContent: z.unknown().optional(),
  isError: z.boolean().default(false),
});
export type McpCallResult = z.infer<typeof CallResultSchema>;

export type Endpoint =
  | ({ readonly transport: 'stdio' } & Omit<StdioOptions, 'onFault' | 'onGarbage'>)
  | {
      readonly transport: 'http' | 'sse';
      readonly url: string;
      readonly headers: Readonly<Record<string, string>>;
      readonly fetch: typeof fetch;
    };

export interface ConnectionOptions {
  readonly endpoint: Endpoint;
  readonly workspace: string;
  readonly version: string;
  readonly clock: Clock;
  readonly onListChanged: () => void;
  /** The server wrote output that is not JSON. */
  readonly onGarbage: () => void;
  /** Called once when an open connection ends. */
  readonly onClosed: OnFault;
  readonly signal: AbortSignal;
}

export interface CallOptions {
  readonly signal: AbortSignal;
  /** Null = none. */
  readonly timeoutMs: number | null;
  readonly onProgress: (text: string) => void;
}

export interface Connection {
  /** The raw entries of the tool list, complete or one more than are used. */
  list(signal: AbortSignal): Promise<readonly unknown[]>;
  call(tool: string, input: Readonly<Record<string, unknown>>, options: CallOptions): Promise<McpCallResult>;
  close(): Promise<void>;
}

/** A failed request; `message` continues a sentence that begins with the server's name. */
export class McpFault extends Error {
  readonly kind: 'unavailable' | 'timeout' | 'refused';

  constructor(kind: McpFault['kind'], message: string) {
    super(message);
    this.kind = kind;
  }
}

/** Throws `McpFault` if the server does not speak MCP; its process has ended by then. */
export async function connect(options: ConnectionOptions): Promise<Connection> {
  // Loaded with the first server.
  const library = await import('@modelcontextprotocol/client');
  let fault: string | null = null;
  let open = false;
  const onFault = (reason: string) => {
    fault ??= reason;
    // Requests over a lost connection are never answered.
    const closed = open ? close() : transport.close();
    closed.catch(() => {});
  };
  const client = new library.Client({ name: 'metis', version: options.version }, { capabilities: { roots: {} } });
  client.setRequestHandler('roots/list', () => ({
    roots: [{ uri: pathToFileURL(options.workspace).href, name: path.basename(options.workspace) }],
  }));
  client.setNotificationHandler('notifications/tools/list_changed', options.onListChanged);
  client.onclose = () => {
    if (!open) return;
    open = false;
    options.onClosed(fault ?? 'closed the connection');
  };
  const transport: Transport = createTransport(library, options, onFault);
  limitAnswers(transport, onFault);
  const limits = (signal: AbortSignal, ms: number | null) => ({
    signal,
    timeout: ms ?? NO_LIMIT_MS,
    maxTotalTimeout: ms ?? NO_LIMIT_MS,
  });

  try {
    await client.connect(transport, limits(options.signal, null));
  } catch (error) {
    await transport.close();
    throw toMcpFault(error);
  }
  open = true;
  if (fault !== null) await close();

  return {
    async list(signal) {
      const entries: unknown[] = [];
      if (client.getServerCapabilities()?.tools === undefined) return entries;
      let cursor: string | undefined;
      for (let page = 0; page < MAX_PAGES; page++) {
        const params = { ...(cursor !== undefined && { cursor }) };
        const answer = await sendRequest(() =>
          client.request({ method: 'tools/list', params }, ToolPageSchema, limits(signal, null)),
        );
        entries.push(...answer.tools.slice(0, MAX_MCP_TOOLS + 1));
        cursor = answer.nextCursor;
        if (cursor === undefined || entries.length > MAX_MCP_TOOLS) return entries;
      }
      throw new McpFault('unavailable', `lists its tools on more than ${MAX_PAGES} pages`);
    },
    call: (name, input, { signal, timeoutMs, onProgress }) =>
      sendRequest(() =>
        client.request({ method: 'tools/call', params: { name, arguments: input } }, CallResultSchema, {
          ...limits(signal, timeoutMs),
          onprogress: ({ progress, total, message }) => onProgress(`${progress}/${total ?? '?'} ${message ?? ''}`),
        }),
      ),
    close,
  };

  async function close(): Promise<void> {
    // Over HTTP a server keeps a session until the client ends it.
    if (transport instanceof library.StreamableHTTPClientTransport && fault === null) {
      const farewell = transport.terminateSession().catch(() => {});
      await Promise.race([farewell, new Promise<void>((resolve) => options.clock.after(FAREWELL_MS, resolve))]);
    }
    await client.close();
  }

  async function sendRequest<T>(request: () => Promise<T>): Promise<T> {
    try {
      return await request();
    } catch (error) {
      throw toMcpFault(error);
    }
  }

  function toMcpFault(error: unknown): McpFault {
    if (fault !== null) return new McpFault('unavailable', fault);
    if (error instanceof library.ProtocolError) return new McpFault('refused', shortenReason(error.message));
    if (error instanceof library.SdkHttpError)
      return new McpFault('unavailable', `answered with HTTP status ${error.status}`);
    const code = error instanceof library.SdkError ? error.code : null;
    if (code === library.SdkErrorCode.RequestTimeout) return new McpFault('timeout', 'did not answer in time');
    if (code === library.SdkErrorCode.ConnectionClosed) return new McpFault('unavailable', 'closed the connection');
    return new McpFault('unavailable', `did not answer as an MCP server: ${shortenReason(errorMessage(error))}`);
  }
}

type Library = typeof import('@modelcontextprotocol/client');

function createTransport(
  library: Library,
  { endpoint, clock, onGarbage }: Pick<ConnectionOptions, 'endpoint' | 'clock' | 'onGarbage'>,
  onFault: OnFault,
): Transport {
  if (endpoint.transport === 'stdio') return stdioTransport({ ...endpoint, onGarbage, onFault });
  const { transport, url } = endpoint;
  const Http = transport === 'sse' ? library.SSEClientTransport : library.StreamableHTTPClientTransport;
  return new Http(new URL(url), {
    fetch: guardedFetch(endpoint.fetch, { clock, onFault, transport }),
    requestInit: { headers: { ...endpoint.headers } },
  });
}

function limitAnswers(transport: Transport, onFault: OnFault): void {
  const send = transport.send.bind(transport);
  let open = 0;
  transport.send = async (message, options) => {
    if ('method' in message) return send(message, options);
    if (open >= MAX_ANSWERS) return onFault('sends requests without reading the answers');
    open += 1;
    return send(message, options).finally(() => {
      open -= 1;
    });
  };
}

function errorMessage(error: unknown): string {
  return readErrorMessage(error);
}

/** Untrusted text as one bounded line. */
function shortenReason(text: string): string {
  const line = flattenText(text.slice(0, 4 * MAX_REASON));
  if (line.length > MAX_REASON) return `${line.slice(0, MAX_REASON)}...`;
  return line;
}
