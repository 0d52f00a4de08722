// A tool of an MCP server as a tool of ours: the dispatcher sees no difference (09 §11.6).

import { checkImage, countDecodedBytes } from '#core/policy/context/image-blocks.ts';
import type { ListedTool } from '#core/policy/mcp/listed-tools.ts';
import { isMapping } from '#core/policy/parsing/yaml.ts';
import { type ProviderSchema, toOwnInput } from '#core/policy/tools/provider-schema.ts';
import type { ToolContext, ToolFactory, ToolInput } from '#core/ports/tool-port.ts';
import type { ToolResultContent } from '#protocol/message.ts';
import { plainText } from '#protocol/text/plain-text.ts';
import type { ToolOutput } from '#protocol/tool.ts';
import type { CallOptions, McpCallResult } from './mcp-connection.ts';

// What a tool of an MCP server answered, as an answer of ours (09 §11.7).

/** Blocks of one answer; the rest is counted. */
const MAX_BLOCKS = 100;
const MAX_LABEL = 100;

function convertResult({ content, structuredContent, isError }: McpCallResult): ToolOutput {
  const shown = content.slice(0, MAX_BLOCKS).map(convertBlock);
  if (content.length > MAX_BLOCKS) shown.push(text(`[${content.length - MAX_BLOCKS} more blocks omitted]`));
  if (shown.length === 0 && structuredContent !== undefined) shown.push(text(JSON.stringify(structuredContent)));
  return { content: shown, success: !isError, metadata: null, files_modified: null, command_executed: null };
}

function convertBlock(block: unknown): ToolResultContent {
  if (!isMapping(block)) return text('[a block without a type omitted]');
  const { type, data, mimeType, resource } = block;
  if (type === 'text' && typeof block.text === 'string') return text(block.text);
  if (type === 'image' && typeof data === 'string' && typeof mimeType === 'string') return image(data, mimeType);
  if (type === 'audio' && typeof data === 'string') return omittedBlock(mimeType, data);
  if (type === 'resource' && isMapping(resource)) {
    if (typeof resource.text === 'string') return text(resource.text);
    if (typeof resource.blob === 'string') return omittedBlock(resource.mimeType, resource.blob);
  }
  if (type === 'resource_link') return text(`${label(block.name)} (${label(block.uri)})`);
  return text(`[${label(type)} block omitted]`);
}

function image(data: string, mediaType: string): ToolResultContent {
  const fault = checkImage(data, mediaType);
  if (fault !== null) return text(`[image omitted: ${fault}]`);
  return { type: 'image', source: { kind: 'base64', data }, media_type: mediaType };
}

function omittedBlock(mediaType: unknown, base64: string): ToolResultContent {
  return text(`[${label(mediaType)}, ${countDecodedBytes(base64)} bytes, omitted]`);
}

function text(given: string): ToolResultContent {
  // Half a surrogate pair is no character that could be sent to a model.
  return { type: 'text', text: plainText(Buffer.from(given, 'utf8').toString('utf8')) };
}

function label(given: unknown): string {
  if (typeof given !== 'string') return 'unknown';
  if (given.length > MAX_LABEL) return `${given.slice(0, MAX_LABEL)}...`;
  return given;
}

/** @param call asks the server; throws `ToolError` */
export function mcpTool(
  { original, definition, names }: ListedTool & Pick<ProviderSchema, 'names'>,
  call: (tool: string, input: ToolInput, options: CallOptions) => Promise<McpCallResult>,
): ToolFactory {
  return () => {
    const stop = new AbortController();
    let running = false;
    return {
      definition,
      async execute(input: ToolInput, context: ToolContext) {
        running = true;
        try {
          const { timeout_seconds: seconds, logger } = context;
          return convertResult(
            await call(original, toOwnInput(input, names), {
              signal: AbortSignal.any([context.signal, stop.signal]),
              timeoutMs: seconds === null ? null : seconds * 1000,
              onProgress: (progress) => logger.debug({ progress }, 'a tool of an MCP server goes on'),
            }),
          );
        } finally {
          running = false;
        }
      },
      cancel: async () => {
        const open = running;
        stop.abort();
        return open;
      },
    };
  };
}
