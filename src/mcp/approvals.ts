// A worker's question to a person, put to the MCP client's own form (19 §3.3).
import type { ElicitRequestFormParams } from '@modelcontextprotocol/server';
import { ApiError, type Confirmation, type ConfirmationAnswer, type MetisClient } from '#client/client.ts';

export type Question = Pick<
  Confirmation,
  'confirmation_request_id' | 'tool_name' | 'input_summary' | 'command_summary' | 'allowed_scopes' | 'expires_at'
>;

/** What a client answered with. */
export interface FormAnswer {
  readonly action: 'accept' | 'decline' | 'cancel';
  readonly content?: Readonly<Record<string, unknown>> | undefined;
}

export function formFor(question: Question, who: string): ElicitRequestFormParams {
  const choices = [
    'approve',
    ...(question.allowed_scopes.includes('identical') ? ['approve identical'] : []),
    'reject',
  ];
  return {
    mode: 'form',
    message: `${who} wants to use ${whatFor(question)}`,
    requestedSchema: {
      type: 'object',
      properties: {
        decision: {
          type: 'string',
          title: 'Decision',
          description: 'approve identical: the same call passes again without asking',
          enum: choices,
        },
      },
      required: ['decision'],
    },
  };
}

export function whatFor({ tool_name, command_summary, input_summary }: Question): string {
  return `${tool_name}: ${command_summary ?? input_summary}`;
}

/** Null leaves it to whoever answers elsewhere: clients without anybody in front of them cancel at once. */
function decisionOf({ action, content }: FormAnswer): ConfirmationAnswer | null {
  if (action === 'cancel') return null;
  if (action === 'decline') return { decision: 'reject' };
  switch (content?.decision) {
    case 'approve':
      return { decision: 'approve' };
    case 'approve identical':
      return { decision: 'approve', scope: 'identical' };
    default:
      return { decision: 'reject' };
  }
}

/** False where the question stays open. Somebody who was faster is right. */
export async function answerWith(client: MetisClient, id: string, answer: FormAnswer): Promise<boolean> {
  const decision = decisionOf(answer);
  if (decision === null) return false;
  try {
    await client.answerConfirmation(id, decision);
  } catch (error) {
    if (!(error instanceof ApiError && ['confirmation_already_resolved', 'not_found'].includes(error.code)))
      throw error;
  }
  return true;
}
