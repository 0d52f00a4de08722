// What an editor sends as a prompt, as the blocks of a turn (19 §4).
import { type ContentBlock, RequestError } from '@agentclientprotocol/sdk';
import type { NewTurn } from '#client/client.ts';

type Block = Exclude<NewTurn['content'], string>[number];

/** Throws for what cannot be said to a model. */
export function turnContent(prompt: readonly ContentBlock[]): Block[] {
  return prompt.map(blockOf);
}

function blockOf(block: ContentBlock): Block {
  switch (block.type) {
    case 'text':
      return { type: 'text', text: block.text };
    case 'image':
      return { type: 'image', source: { kind: 'base64', data: block.data }, media_type: block.mimeType };
    case 'resource_link':
      return { type: 'text', text: pathOf(block.uri) };
    case 'resource':
      if ('text' in block.resource) return { type: 'text', text: `${block.resource.uri}\n${block.resource.text}` };
      throw RequestError.invalidParams({ uri: block.resource.uri }, 'embedded resources must be text');
    default:
      throw RequestError.invalidParams({ type: block.type }, 'prompts hold text, images, links and embedded text');
  }
}

/** A link is a path to a model that reads files. */
function pathOf(uri: string): string {
  if (!uri.startsWith('file://')) return uri;
  try {
    return decodeURIComponent(new URL(uri).pathname);
  } catch {
    return uri;
  }
}
