// OpenAI Responses for the fake provider: a request in the form of Chat Completions, an answer as the events of the wire.

type Json = Readonly<Record<string, unknown>>;

interface Item {
  readonly type?: string;
  readonly role?: string;
  readonly content?: readonly { readonly text?: string }[];
  readonly call_id?: string;
  readonly name?: string;
  readonly arguments?: string;
  readonly output?: string;
}

/** The same request as Chat Completions would have it. */
export function toChatRequest(text: string): string {
  const { instructions, input, tools, max_output_tokens, reasoning, ...rest } = JSON.parse(text) as Json & {
    readonly input: readonly Item[];
    readonly tools?: readonly Json[];
  };
  const messages: Json[] = instructions === undefined ? [] : [{ role: 'system', content: instructions }];
  for (const item of input) {
    const last = messages.at(-1) as { tool_calls?: Json[]; role?: string } | undefined;
    const words = (item.content ?? []).map((part) => part.text ?? '').join('');
    if (item.type === 'function_call_output')
      messages.push({ role: 'tool', tool_call_id: item.call_id, content: item.output });
    else if (item.type === 'function_call') {
      const call = { id: item.call_id, type: 'function', function: { name: item.name, arguments: item.arguments } };
      if (last?.role === 'assistant') last.tool_calls = [...(last.tool_calls ?? []), call];
      else messages.push({ role: 'assistant', content: null, tool_calls: [call] });
    } else messages.push({ role: item.role, content: words });
  }
  return JSON.stringify({
    ...Object.fromEntries(Object.entries(rest).filter(([key]) => !['store', 'include', 'text'].includes(key))),
    messages,
    ...(tools && { tools: tools.map(({ type, ...made }) => ({ type, function: made })) }),
    max_completion_tokens: max_output_tokens,
    ...(reasoning !== undefined && { reasoning_effort: (reasoning as Json).effort }),
  });
}

/** @param calls tools that the answer calls, with their arguments as text */
export function renderResponses(answer: {
  readonly id: string;
  readonly model: string;
  readonly text: string | undefined;
  readonly calls: readonly { readonly id: string; readonly name: string; readonly json: string }[];
  readonly usage: { readonly input: number; readonly cached: number; readonly output: number } | null;
}): readonly string[] {
  const { id, model, text, calls, usage } = answer;
  const items: Json[] = [
    ...(text ? [{ type: 'message', id: `${id}_m`, content: [{ type: 'output_text', text }] }] : []),
    ...calls.map((call) => ({ type: 'function_call', call_id: call.id, name: call.name, arguments: call.json })),
  ];
  const counted = usage && {
    input_tokens: usage.input,
    input_tokens_details: { cached_tokens: usage.cached },
    output_tokens: usage.output,
  };
  const events: Json[] = [
    { type: 'response.created', response: { id, model } },
    ...items.map((item, output_index) => ({ type: 'response.output_item.done', output_index, item })),
    { type: 'response.completed', response: { id, model, status: 'completed', usage: counted } },
  ];
  return events.map((event) => `data: ${JSON.stringify(event)}\n\n`);
}
