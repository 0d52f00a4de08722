// The tool messages of a finished batch, what was said to the turn meanwhile, and the model call that takes both along (00 §3 step 5).

import type { ToolUseBlock } from '#protocol/message.ts';
import { appended } from '../model-call/deltas.ts';
import { callStarted } from '../model-call/model-request.ts';
import type { Engine } from '../state/engine.ts';
import { inputsRead, messagesStored, nextCallPrepared } from '../state/run-progress.ts';
import type { ToolResults } from '../state/tool-results.ts';
import type { TurnRun } from '../state/turn-run.ts';
import { answerMessages, FAILED_TEXT } from '../tool-call/results.ts';
import { NONE, waitingInputs } from './inputs.ts';
import { certainCall } from './next-step.ts';

/** Stores the tool messages of a finished batch in one transaction with what was said meanwhile, and announces the call that takes them along. */
export async function storeAnswers(
  engine: Engine,
  run: TurnRun,
  calls: readonly ToolUseBlock[],
  results: ToolResults,
): Promise<void> {
  const { messages, writes } = answerMessages(engine, run, calls, { results, missing: FAILED_TEXT });
  const inputs = (await waitingInputs(engine, run, messages)) ?? NONE;
  const prepared = await certainCall(engine, run, [...run.history, ...messages, ...inputs.messages]);
  const emit = [...messages.map((m) => appended(engine, run, m)), ...inputs.emit];
  const cause = inputs.messages.length === 0 ? run.cause : emit.findLastIndex((item) => 'type' in item);
  const events = await engine.journal.commit({
    writes: [...writes, ...inputs.writes],
    emit: [...emit, ...(prepared ? [callStarted(run, prepared, cause)] : [])],
  });
  messagesStored(run, messages);
  const read = inputs.messages.length;
  if (read > 0) inputsRead(run, inputs.messages, events[read - 1]!.id);
  if (prepared) nextCallPrepared(run, { prepared, started: events[read]!.id });
}
