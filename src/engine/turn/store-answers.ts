// The tool messages of a finished batch, and the model call that takes them along (00 §3 step 5).

import type { ToolUseBlock } from '../../domain/message.ts';
import { appended } from '../model-call/deltas.ts';
import { callStarted } from '../model-call/model-request.ts';
import type { Engine } from '../state/engine.ts';
import { messagesStored, nextCallPrepared } from '../state/run-progress.ts';
import type { ToolResults } from '../state/tool-results.ts';
import type { TurnRun } from '../state/turn-run.ts';
import { answerMessages, FAILED_TEXT } from '../tool-call/results.ts';
import { certainCall } from './next-step.ts';

/** Stores the tool messages of a finished batch in one transaction, and announces the call that takes them along. */
export async function storeAnswers(
  engine: Engine,
  run: TurnRun,
  calls: readonly ToolUseBlock[],
  results: ToolResults,
): Promise<void> {
  const { messages, writes } = answerMessages(engine, run, calls, { results, missing: FAILED_TEXT });
  const prepared = await certainCall(engine, run, [...run.history, ...messages]);
  const events = await engine.journal.commit({
    writes,
    emit: [
      ...messages.map((m) => appended(engine, run, m)),
      ...(prepared ? [callStarted(run, prepared, run.cause)] : []),
    ],
  });
  messagesStored(run, messages);
  if (prepared) nextCallPrepared(run, { prepared, started: events[0]!.id });
}
