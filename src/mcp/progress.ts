// What a client is told while its worker is at work: `fast worker · edit_file src/a.ts · 3 calls · $0.0041` (19 §3.2).
import type { ServerContext } from '@modelcontextprotocol/server';
import type { Snapshot, StreamEvent } from '#client/client.ts';
import type { Clock, Timer } from '#protocol/clock.ts';
import { fromPusd, toPusd, ZERO_PUSD } from '#protocol/money.ts';

/** At most one in this time, and at least one in that. */
const LEAST_MS = 1000;
const MOST_MS = 25_000;
const MAX_NAME = 80;

export interface Progress {
  stands(snapshot: Snapshot): void;
  seen(event: StreamEvent): void;
  /** What a person is asked for, and where; null when nothing waits any more. */
  waits(text: string | null): void;
  stop(): void;
}

const SILENT: Progress = { stands() {}, seen() {}, waits() {}, stop() {} };

/** @param who `fast worker`, or the name of the worker */
export function createProgress(clock: Clock, { mcpReq }: ServerContext, who: string): Progress {
  const token = mcpReq._meta?.progressToken;
  if (token === undefined) return SILENT;
  const tools = new Map<string, string>();
  let doing = 'starts';
  let waiting: string | null = null;
  let calls = 0;
  let cost: bigint = ZERO_PUSD;
  let sent = 0;
  let lastAt = -LEAST_MS;
  let stopped = false;
  let timer: Timer | null = null;

  function send(): void {
    if (stopped) return;
    lastAt = clock.monotonic();
    sent += 1;
    const count = `${calls} ${calls === 1 ? 'call' : 'calls'}`;
    const message = [who, waiting ?? doing, count, `$${fromPusd(cost)}`].join(' · ');
    const params = { progressToken: token as string | number, progress: sent, message };
    mcpReq.notify({ method: 'notifications/progress', params }).catch(() => {});
    later(MOST_MS);
  }
  function later(ms: number): void {
    timer?.cancel();
    timer = clock.after(ms, send);
  }
  function changed(): void {
    later(Math.max(0, LEAST_MS - (clock.monotonic() - lastAt)));
  }

  send();
  return {
    stands({ session, messages }) {
      const said = messages.filter(({ role }) => role === 'assistant');
      calls = said.length;
      cost = toPusd(session.cost_so_far_usd) + toPusd(session.workers_cost_usd);
      const call = said.at(-1)?.content.findLast((block) => block.type === 'tool_use');
      if (call !== undefined) doing = toolLine(call.name, call.input);
      changed();
    },
    seen(event) {
      if (stopped) return;
      switch (event.type) {
        case 'tool.use_start':
          tools.set(event.payload.tool_use_id, event.payload.tool_name);
          return;
        case 'tool.use_end':
          doing = toolLine(tools.get(event.payload.tool_use_id) ?? 'a tool', event.payload.final_input);
          return changed();
        case 'llm.call_started':
          doing = 'thinks';
          return changed();
        case 'llm.call_completed':
          calls += 1;
          cost += toPusd(event.payload.cost_usd);
          return changed();
        default:
      }
    },
    waits(text) {
      waiting = text;
      changed();
    },
    stop() {
      stopped = true;
      timer?.cancel();
    },
  };
}

/** `edit_file src/a.ts`: the tool and the one thing that tells what it is about. */
function toolLine(name: string, input: Readonly<Record<string, unknown>>): string {
  const about = [input.path, input.command, input.pattern, input.task].find((value) => typeof value === 'string');
  if (typeof about !== 'string') return name;
  const line = about.split('\n', 1)[0] ?? '';
  return `${name} ${line.length > MAX_NAME ? `${line.slice(0, MAX_NAME)}…` : line}`;
}
