// The prompts of one session that wait for their turn to end, and its permission requests (19 §4).
import {
  type AgentContext,
  type ContentBlock,
  type PermissionOption,
  RequestError,
  type StopReason,
} from '@agentclientprotocol/sdk';
import {
  ApiError,
  type Confirmation,
  type ConfirmationAnswer,
  type MetisClient,
  type NewTurn,
  type StreamEvent,
  type Turn,
} from '#client/client.ts';

/** How a turn ended, in the terms of the editor's protocol. */
export type Ending =
  | { readonly stopReason: StopReason; readonly why: string | null }
  | { readonly failed: RequestError };

type TurnEnd = Extract<StreamEvent, { type: 'turn.completed' | 'turn.failed' | 'turn.cancelled' }>;

export function readEnding(event: TurnEnd): Ending {
  if (event.type === 'turn.cancelled') return { stopReason: 'cancelled', why: null };
  if (event.type === 'turn.failed') return toFailedEnding(event.payload.error_message, event.payload.error_code);
  return toCompletedEnding(event.payload.stop_reason);
}

/** The same for a stored turn. Null while it has not ended. */
export function readTurnEnding({ status, stop_reason, error_message, error_code }: Turn): Ending | null {
  if (status === 'cancelled') return { stopReason: 'cancelled', why: null };
  if (status === 'failed') return toFailedEnding(error_message ?? 'the turn failed', error_code ?? 'internal_error');
  if (status === 'completed') return toCompletedEnding(stop_reason ?? 'end_turn');
  return null;
}

function toFailedEnding(message: string, code: string): Ending {
  return { failed: RequestError.internalError({ code }, message) };
}

function toCompletedEnding(stop: NonNullable<Turn['stop_reason']>): Ending {
  if (stop === 'max_tokens') return { stopReason: 'max_tokens', why: null };
  if (stop === 'tool_use') return { stopReason: 'max_turn_requests', why: 'Stopped at the limit of model calls.' };
  if (stop === 'budget_exceeded') return { stopReason: 'max_turn_requests', why: 'Stopped: the limit is reached.' };
  return { stopReason: 'end_turn', why: null };
}

interface Prompts {
  /** Resolves with the end of the turn, past or to come. */
  end(turn: string): Promise<Ending>;
  resolveEnding(turn: string, ending: Ending): void;
  waiting(): readonly string[];
  /** Rejects waiting and later prompts: no end of a turn can be received any more. */
  rejectAll(error: unknown): void;
  /** Throws what `rejectAll` was called with. */
  requireWatched(): void;
}

export function createPrompts(): Prompts {
  const known = new Map<string, Ending>();
  const open = new Map<string, { resolve(ending: Ending): void; reject(error: unknown): void }>();
  let lost: { readonly error: unknown } | null = null;
  return {
    end: (turn) =>
      new Promise((resolve, reject) => {
        const ending = known.get(turn);
        if (ending !== undefined) resolve(ending);
        else if (lost !== null) reject(lost.error);
        else open.set(turn, { resolve, reject });
      }),
    resolveEnding(turn, ending) {
      // A turn may end before its submission is answered.
      known.set(turn, ending);
      open.get(turn)?.resolve(ending);
      open.delete(turn);
    },
    waiting: () => [...open.keys()],
    rejectAll(error) {
      lost = { error };
      for (const { reject } of open.values()) reject(error);
      open.clear();
    },
    requireWatched() {
      if (lost !== null) throw lost.error;
    },
  };
}

type PermissionRequest = Pick<
  Confirmation,
  'confirmation_request_id' | 'tool_use_id' | 'tool_name' | 'input_summary' | 'command_summary' | 'is_worker'
> & { readonly allowed_scopes: readonly string[] };

interface Choice extends PermissionOption {
  readonly answer: ConfirmationAnswer;
}

/** The possible answers; an answer to a worker's request creates no rule. */
function buildChoices({ allowed_scopes, is_worker, tool_name }: PermissionRequest): Choice[] {
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

interface Permissions {
  ask(question: PermissionRequest): void;
  /** The request was answered, here or elsewhere. */
  closeRequest(id: string): void;
  close(): void;
}

/** @param onError receives the error that kept an answer from the server */
export function createPermissions(
  client: MetisClient,
  editor: AgentContext,
  sessionId: string,
  onError: (error: unknown) => void,
): Permissions {
  const open = new Map<string, AbortController>();

  async function requestPermission(question: PermissionRequest, signal: AbortSignal): Promise<void> {
    const choices = buildChoices(question);
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
      requestPermission(question, gone.signal).catch((error: unknown) => {
        const late = error instanceof ApiError && error.code === 'confirmation_already_resolved';
        if (!gone.signal.aborted && !late) onError(error);
      });
    },
    closeRequest(id) {
      open.get(id)?.abort();
      open.delete(id);
    },
    close() {
      for (const gone of open.values()) gone.abort();
      open.clear();
    },
  };
}

type Block = Exclude<NewTurn['content'], string>[number];

/** Throws for content that no model accepts. */
export function toTurnContent(prompt: readonly ContentBlock[]): Block[] {
  return prompt.map(toTurnBlock);
}

function toTurnBlock(block: ContentBlock): Block {
  switch (block.type) {
    case 'text':
      return { type: 'text', text: block.text };
    case 'image':
      return { type: 'image', source: { kind: 'base64', data: block.data }, media_type: block.mimeType };
    case 'resource_link':
      return { type: 'text', text: toPath(block.uri) };
    case 'resource':
      if ('text' in block.resource) return { type: 'text', text: `${block.resource.uri}\n${block.resource.text}` };
      throw RequestError.invalidParams({ uri: block.resource.uri }, 'embedded resources must be text');
    default:
      throw RequestError.invalidParams({ type: block.type }, 'prompts hold text, images, links and embedded text');
  }
}

/** A model that reads files needs the path of a link. */
function toPath(uri: string): string {
  if (!uri.startsWith('file://')) return uri;
  try {
    return decodeURIComponent(new URL(uri).pathname);
  } catch {
    return uri;
  }
}
