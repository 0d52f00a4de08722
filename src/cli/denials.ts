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
  readonly tool: string;
  /** The command of a shell call, else its input, shortened. */
  readonly about: string;
}

const MAX_LISTED = 5;
const MAX_ABOUT = 100;

export function createDenials(): Denials {
  const asked = new Map<string, AskedCall>();
  const denied: AskedCall[] = [];
  return {
    apply(event, who) {
      if (event.type === 'tool.confirmation_requested') {
        const { confirmation_request_id, tool_name, command_summary, input_summary } = event.payload;
        asked.set(confirmation_request_id, { who, tool: tool_name, about: command_summary ?? input_summary });
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
      const tools = [...new Set(denied.map(({ tool }) => tool))].join(', ');
      return [
        `denied, as it needs approval and there is no terminal to ask at: ${listed.join('; ')}`,
        `to allow it, run at a terminal, or with --approve (a running server needs workers.allow_approve_all: true), or add ${tools} to always_allow in .metis/trust.yaml`,
      ];
    },
  };
}

function describeCall({ who, tool, about }: AskedCall): string {
  if (about.length <= MAX_ABOUT) return `${tool} ${about} (${who})`;
  return `${tool} ${about.slice(0, MAX_ABOUT)}… (${who})`;
}
