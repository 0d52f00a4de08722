// The trace that a turn belongs to, from its submission to the MCP servers it calls (18 §2). The engine knows nothing of it.
import { AsyncLocalStorage } from 'node:async_hooks';
import type { LiveBus } from '#core/ports/live-bus.ts';
import type { ToolContext } from '#core/ports/tool-port.ts';
import type { Event, PayloadOf } from '#protocol/event.ts';
import type { ToolUseId, TurnId } from '#protocol/ids.ts';
import type { Mcp } from '#tools/mcp-client/workspace-servers.ts';

/** The W3C headers as they came. */
export interface TraceHeaders {
  readonly traceparent: string;
  readonly tracestate?: string;
}

export interface TraceRelay {
  /** A submission's headers, before its turn exists; what is no trace context is passed over. */
  incoming(turnId: TurnId, headers: Readonly<Record<string, unknown>>): void;
  /** The turn did not come to be. */
  forget(turnId: TurnId): void;
  of(turnId: TurnId): TraceHeaders | undefined;
  /** From now on a call's own span replaces the headers of its turn. */
  use(spanOf: (toolUseId: ToolUseId) => TraceHeaders | undefined): void;
  /** The `fetch` of MCP servers: requests made for a tool call carry its trace. */
  fetch(plain: typeof fetch): typeof fetch;
  mcp(plain: Mcp): Mcp;
}

const PARENT = /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.{0,200})?$/;
const MAX_STATE = 512;

export function createTraceRelay(bus: LiveBus): TraceRelay {
  const turns = new Map<string, TraceHeaders>();
  /** Worker session -> the headers of the turn that opened it. */
  const workers = new Map<string, TraceHeaders>();
  const calls = new AsyncLocalStorage<Pick<ToolContext, 'turn_id' | 'tool_use_id'>>();
  let findSpan: (toolUseId: ToolUseId) => TraceHeaders | undefined = () => undefined;

  function fold({ type, session_id, turn_id, payload }: Event): void {
    if (turn_id === null) return void (type === 'session.ended' && workers.delete(session_id));
    if (type === 'delegate.started') {
      const headers = turns.get(turn_id);
      if (headers) workers.set((payload as PayloadOf<'delegate.started'>).worker_session_id, headers);
    } else if (type === 'turn.started') {
      const headers = workers.get(session_id);
      if (headers) turns.set(turn_id, headers);
    } else if (type === 'turn.completed' || type === 'turn.failed' || type === 'turn.cancelled') turns.delete(turn_id);
  }
  bus.subscribe('trace-relay', (items) => {
    // Most servers are never given a trace.
    if (turns.size + workers.size === 0) return;
    for (const item of items) if (item.kind === 'event') fold(item.event);
  });

  return {
    incoming(turnId, { traceparent, tracestate }) {
      if (typeof traceparent !== 'string' || !PARENT.test(traceparent)) return;
      if (typeof tracestate === 'string' && tracestate.length <= MAX_STATE)
        turns.set(turnId, { traceparent, tracestate });
      else turns.set(turnId, { traceparent });
    },
    forget: (turnId) => void turns.delete(turnId),
    of: (turnId) => turns.get(turnId),
    use: (spans) => {
      findSpan = spans;
    },
    fetch: (plain) => (input, init) => {
      const call = calls.getStore();
      const trace = call && (findSpan(call.tool_use_id) ?? turns.get(call.turn_id));
      if (!trace) return plain(input, init);
      const headers = new Headers(init?.headers);
      for (const [name, value] of Object.entries(trace)) headers.set(name, value);
      return plain(input, { ...init, headers });
    },
    mcp: (plain) => {
      type McpTools = ReturnType<Mcp['knownTools']>;
      const traceTools = (tools: McpTools): McpTools =>
        tools.map((one) => ({
          ...one,
          factory: () => {
            const tool = one.factory();
            return { ...tool, execute: (input, context) => calls.run(context, () => tool.execute(input, context)) };
          },
        }));
      return {
        ...plain,
        tools: async (workspace) => traceTools(await plain.tools(workspace)),
        knownTools: (workspace) => traceTools(plain.knownTools(workspace)),
      };
    },
  };
}
