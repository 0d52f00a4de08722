// What a tool needs a person's word for, asked in the editor (19 §4).
import type { AgentContext, PermissionOption } from '@agentclientprotocol/sdk';
import { ApiError, type Confirmation, type ConfirmationAnswer, type MetisClient } from '#client/client.ts';

export type Question = Pick<
  Confirmation,
  'confirmation_request_id' | 'tool_use_id' | 'tool_name' | 'input_summary' | 'command_summary' | 'is_worker'
> & { readonly allowed_scopes: readonly string[] };

interface Choice extends PermissionOption {
  readonly answer: ConfirmationAnswer;
}

/** What may be answered; a worker's question leaves no rule behind. */
function choicesOf({ allowed_scopes, is_worker, tool_name }: Question): Choice[] {
  const lasting = allowed_scopes.includes('always') && !is_worker;
  const choices: Choice[] = [
    { optionId: 'approve', name: 'Allow', kind: 'allow_once', answer: { decision: 'approve' } },
    { optionId: 'reject', name: 'Reject', kind: 'reject_once', answer: { decision: 'reject' } },
  ];
  if (allowed_scopes.includes('identical'))
    choices.splice(1, 0, {
      optionId: 'approve_identical',
      name: 'Allow this very call from now on',
      kind: 'allow_always',
      answer: { decision: 'approve', scope: 'identical' },
    });
  if (!lasting) return choices;
  const always = { scope: 'always' } as const;
  const allow = { name: `Always allow ${tool_name} here`, answer: { decision: 'approve', ...always } } as const;
  const reject = { name: `Always reject ${tool_name} here`, answer: { decision: 'reject', ...always } } as const;
  return [
    ...choices,
    { optionId: 'approve_always', kind: 'allow_always', ...allow },
    { optionId: 'reject_always', kind: 'reject_always', ...reject },
  ];
}

export interface Permissions {
  ask(question: Question): void;
  /** Somebody has answered, wherever. */
  answered(id: string): void;
  close(): void;
}

/** @param failed hears what kept an answer from the server */
export function createPermissions(
  client: MetisClient,
  editor: AgentContext,
  sessionId: string,
  failed: (error: unknown) => void,
): Permissions {
  const open = new Map<string, AbortController>();

  async function put(question: Question, signal: AbortSignal): Promise<void> {
    const choices = choicesOf(question);
    const { outcome } = await editor.request(
      'session/request_permission',
      {
        sessionId,
        toolCall: {
          toolCallId: question.tool_use_id,
          title: `${question.tool_name}: ${question.command_summary ?? question.input_summary}`,
        },
        options: choices.map(({ answer: _, ...option }) => option),
      },
      { cancellationSignal: signal },
    );
    if (signal.aborted || outcome.outcome === 'cancelled') return;
    const chosen = choices.find(({ optionId }) => optionId === outcome.optionId);
    await client.answerConfirmation(question.confirmation_request_id, chosen?.answer ?? { decision: 'reject' });
  }

  return {
    ask(question) {
      const id = question.confirmation_request_id;
      if (open.has(id)) return;
      const gone = new AbortController();
      open.set(id, gone);
      put(question, gone.signal).catch((error: unknown) => {
        const late = error instanceof ApiError && error.code === 'confirmation_already_resolved';
        if (!gone.signal.aborted && !late) failed(error);
      });
    },
    answered(id) {
      open.get(id)?.abort();
      open.delete(id);
    },
    close() {
      for (const gone of open.values()) gone.abort();
      open.clear();
    },
  };
}
