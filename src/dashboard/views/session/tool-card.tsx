// A tool call in its place in the conversation: what was asked, how it stands, what came of it.

import { useEffect, useRef, useState } from 'preact/hooks';
import type { Message } from '#client/client.ts';
import { Change, readChange } from '#dashboard/approval/arguments.tsx';
import { summarizeInput } from '#dashboard/format/format.ts';
import { Badge, Icon } from '#dashboard/parts/labels.tsx';
import { CodeBlock } from '#dashboard/parts/markdown.tsx';
import { Clipped } from '#dashboard/parts/panels.tsx';
import { executedInput } from './edited-call.ts';
import type { ToolState } from './live/live-node.ts';
import type { Block } from './live/open-message.ts';

// An image of a message, drawn on a canvas: the page's policy lets no image in but the server's own.

const TYPES = /^image\/(?:png|jpeg|gif|webp)$/;

export function MessageImage({ data, mediaType }: { readonly data: string; readonly mediaType: string }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [broken, setBroken] = useState(!TYPES.test(mediaType));
  useEffect(() => {
    let gone = false;
    if (!TYPES.test(mediaType)) return;
    draw(data, mediaType)
      .then((bitmap) => {
        const target = canvas.current;
        if (gone || target === null) return;
        target.width = bitmap.width;
        target.height = bitmap.height;
        target.getContext('2d')?.drawImage(bitmap, 0, 0);
      })
      .catch(() => setBroken(true));
    return () => {
      gone = true;
    };
  }, [data, mediaType]);
  if (broken) return <p class="quiet">[image of type {mediaType}: cannot be displayed]</p>;
  return (
    <canvas ref={canvas} class="message-image" role="img">
      An image
    </canvas>
  );
}

async function draw(data: string, type: string): Promise<ImageBitmap> {
  const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
  return createImageBitmap(new Blob([bytes], { type }));
}

export type ToolUse = Extract<Block, { type: 'tool_use' }>;
export type ToolResult = Extract<Block, { type: 'tool_result' }>;

/** What is shown of an output before one asks for all of it. */
const SHOWN = 4000;

export function ToolCard(props: {
  readonly use: ToolUse;
  readonly result: ToolResult | undefined;
  readonly state: ToolState | undefined;
  /** A person changed the arguments before it ran. */
  readonly edited: boolean;
  /** Raw text of an input that is still being written. */
  readonly partial?: string | undefined;
}) {
  const { use, result, partial, edited } = props;
  const status = getToolStatus(props);
  const executed = edited && result !== undefined ? executedInput(use.input, result) : null;
  const input = executed ?? use.input;
  const change = partial === undefined ? readChange(use.name, input) : null;
  return (
    <details class={`tool-card ${status}`}>
      <summary>
        <Icon name={status === 'failed' ? 'alert' : 'tool'} />
        <span class="tool-name">{use.name}</span>
        <span class="tool-input">{partial ?? summarizeInput(input)}</span>
        {edited && <Badge tone="warn">edited</Badge>}
        <span class="tool-status">{status}</span>
      </summary>
      <div class="tool-body">
        <p class="tool-part">{executed === null ? 'Input' : 'Input after editing'}</p>
        {change !== null && <Change change={change} />}
        {change === null && <CodeBlock text={partial ?? JSON.stringify(input, null, 2)} />}
        {executed !== null && (
          <details>
            <summary>Original input of the model</summary>
            <CodeBlock text={JSON.stringify(use.input, null, 2)} />
          </details>
        )}
        {result === undefined && props.state?.detail && <p class="field-error">{props.state.detail}</p>}
        {result !== undefined && (
          <>
            <p class="tool-part">{result.is_error ? 'Error' : 'Output'}</p>
            <Output content={executed === null ? result.content : result.content.slice(1)} />
          </>
        )}
      </div>
    </details>
  );
}

function Output({ content }: { readonly content: ToolResult['content'] }) {
  return (
    <>
      {content.map((part, i) => (
        <OutputPart key={`${part.type} ${i + 1}`} part={part} />
      ))}
    </>
  );
}

function OutputPart({ part }: { readonly part: ToolResult['content'][number] }) {
  if (part.type === 'text') return <LongText text={part.text} />;
  return <MessageImage data={part.source.data} mediaType={part.media_type} />;
}

function LongText({ text }: { readonly text: string }) {
  return (
    <Clipped text={text || '(empty)'} first={SHOWN}>
      {(shown) => <CodeBlock text={shown} />}
    </Clipped>
  );
}

function getToolStatus({
  result,
  state,
  partial,
}: Pick<Parameters<typeof ToolCard>[0], 'result' | 'state' | 'partial'>) {
  if (result !== undefined) {
    if (result.is_error) return 'failed';
    return 'done';
  }
  if (partial !== undefined) return 'writing';
  return state?.status ?? 'waiting';
}

/** Results by the call they answer. */
export function mapResults(messages: readonly Message[]): Map<string, ToolResult> {
  return new Map(
    messages
      .filter(({ role }) => role === 'tool')
      .flatMap(({ content }) => content.filter((block): block is ToolResult => block.type === 'tool_result'))
      .map((block) => [block.tool_use_id, block]),
  );
}
