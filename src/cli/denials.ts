// The calls of a run that were denied because no person was there to approve them (17 §2).
import type { StoredEvent } from '#client/client.ts';

export interface Denials {
  /** Every stored event of the session and its workers. `who` names the session in a word. */
  apply(event: StoredEvent, who: string): void;
  count(): number;
  /** Sentences: what was denied, why, and how to allow it. None where nothing was. */
  describe(): string[];
}

interface AskedCall {
  readonly who: string;
  /** Null = the bill of the delegations of a message, which is above a limit whatever tool is allowed. */
  readonly tool: string | null;
  /** The command of a shell call, else its input, shortened. */
  readonly about: string;
}

const RAISE = 'or raise delegation.confirm_above_usd or delegation.confirm_above_workers';
const MAX_LISTED = 5;
const MAX_ABOUT = 100;

export function createDenials(): Denials {
  const asked = new Map<string, AskedCall>();
  const denied: AskedCall[] = [];
  return {
    apply(event, who) {
      if (event.type === 'tool.confirmation_requested') {
        const { confirmation_request_id, kind, tool_name, command_summary, input_summary } = event.payload;
        const tool = kind === 'delegations' ? null : tool_name;
        asked.set(confirmation_request_id, { who, tool, about: command_summary ?? input_summary });
      }
      if (event.type !== 'tool.confirmation_resolved') return;
      const { confirmation_request_id, decision, resolved_by } = event.payload;
      const call = asked.get(confirmation_request_id);
      asked.delete(confirmation_request_id);
      // Policy rejects a call that needs approval only in a session without a person.
      if (call !== undefined && decision === 'reject' && resolved_by === 'policy') denied.push(call);
    },
    count: () => denied.length,
    describe() {
      if (denied.length === 0) return [];
      const listed = denied.slice(0, MAX_LISTED).map(describeCall);
      if (denied.length > MAX_LISTED) listed.push(`and ${denied.length - MAX_LISTED} more`);
      const tools = [...new Set(denied.flatMap(({ tool }) => tool ?? []))].join(', ');
      const ways = [
        'run at a terminal',
        'or with --approve (a running server needs workers.allow_approve_all: true)',
        ...(tools === '' ? [] : [`or add ${tools} to always_allow in .metis/trust.yaml`]),
        ...(denied.some(({ tool }) => tool === null) ? [RAISE] : []),
      ];
      return [
        `denied, as it needs approval and there is no terminal to ask at: ${listed.join('; ')}`,
        `to allow it, ${ways.join(', ')}`,
      ];
    },
  };
}

function describeCall({ who, tool, about }: AskedCall): string {
  const shown = about.length <= MAX_ABOUT ? about : `${about.slice(0, MAX_ABOUT)}…`;
  return `${tool === null ? '' : `${tool} `}${shown} (${who})`;
}
