// The table of tools that providers run knows every tool type of their own SDKs (22 §3).
import fs from 'node:fs';
import path from 'node:path';
import { parse } from '@babel/parser';
import { describe, expect, it } from 'vitest';
import { BILLED_MEMBERS, findToolWork, getWireTools } from '#core/policy/gateway/provider-tools.ts';
import { type ClientWire, ClientWireSchema } from '#protocol/client-wire.ts';

/** As much of a syntax tree as is looked at. */
interface Node {
  readonly type: string;
  readonly name?: string;
  readonly value?: unknown;
  readonly id?: Node;
  readonly key?: Node;
  readonly left?: Node;
  readonly right?: Node;
  readonly declaration?: Node | null;
  readonly body?: Node | readonly Node[];
  readonly types?: readonly Node[];
  readonly typeName?: Node;
  readonly typeAnnotation?: Node;
  readonly literal?: Node;
}

/** What a declaration file declares, by name. */
function readDeclarations(file: string): ReadonlyMap<string, Node> {
  const declarations = new Map<string, Node>();
  const collect = (nodes: readonly Node[], prefix: string): void => {
    for (const node of nodes) {
      const found = node.declaration ?? node;
      const name = prefix + (found.id?.name ?? '');
      if (found.type === 'TSModuleDeclaration') collect(listBody(found.body as Node), `${name}.`);
      else if (found.id !== undefined && !declarations.has(name)) declarations.set(name, found);
    }
  };
  const tree = parse(fs.readFileSync(file, 'utf8'), {
    sourceType: 'module',
    plugins: [['typescript', { dts: true }]],
  });
  collect(tree.program.body as unknown as readonly Node[], '');
  return declarations;
}

/** The values of `type` in every member of a union that a declaration file exports. */
function readToolTypes(file: string, union: string): readonly string[] {
  const declarations = readDeclarations(file);
  const readName = (node: Node): string => node.name ?? `${readName(node.left!)}.${readName(node.right!)}`;
  const readUnion = (node: Node): readonly Node[] => node.types ?? [node];
  const readTypes = (name: string): readonly string[] => {
    const found = declarations.get(name);
    if (found === undefined) throw new Error(`${name} is not declared in ${file}`);
    if (found.type === 'TSTypeAliasDeclaration')
      return readUnion(found.typeAnnotation!).flatMap((member) => readTypes(readName(member.typeName!)));
    const member = listBody(found.body as Node).find(({ key }) => key?.name === 'type');
    const literals = readUnion(member!.typeAnnotation!.typeAnnotation!);
    return literals.flatMap(({ literal }) => (literal === undefined ? [] : [String(literal.value)]));
  };
  return readTypes(union);
}

function listBody(node: Node): readonly Node[] {
  return node.body as readonly Node[];
}

const folderOf = (name: string) => path.join(import.meta.dirname, '../../../node_modules', name, 'resources');
const ANTHROPIC = folderOf('@anthropic-ai/sdk');
const OPENAI = folderOf('openai');

/** Fields of a body that let no provider work by itself, and raise no bill: text, settings, and names of what is kept. */
const PLAIN_FIELDS: ReadonlySet<string> = new Set([
  // Messages
  ...['betas', 'billing_policy', 'cache_control', 'diagnostics', 'fallback_credit_token', 'metadata', 'output_config'],
  ...['output_format', 'stop_sequences', 'stream', 'temperature', 'thinking', 'tool_choice', 'top_k', 'top_p'],
  ...['user_profile_id', 'workspace_id'],
  // Chat Completions; `audio` counts with `modalities` alone
  ...['audio', 'frequency_penalty', 'function_call', 'functions', 'logit_bias', 'logprobs', 'moderation'],
  ...['parallel_tool_calls', 'presence_penalty', 'prompt_cache_key', 'prompt_cache_options', 'prompt_cache_retention'],
  ...['reasoning_effort', 'response_format', 'safety_identifier', 'seed', 'stop', 'stream_options', 'top_logprobs'],
  ...['user', 'verbosity'],
  // Responses
  ...['include', 'text', 'truncation'],
]);

const BODIES: readonly (readonly [file: string, name: string])[] = [
  [path.join(ANTHROPIC, 'messages/messages.d.ts'), 'MessageCreateParamsBase'],
  [path.join(ANTHROPIC, 'beta/messages/messages.d.ts'), 'MessageCreateParamsBase'],
  [path.join(OPENAI, 'chat/completions/completions.d.ts'), 'ChatCompletionCreateParamsBase'],
  [path.join(OPENAI, 'responses/responses.d.ts'), 'ResponseCreateParamsBase'],
  [path.join(OPENAI, 'beta/responses/responses.d.ts'), 'ResponseCreateParamsBase'],
];

const UNIONS: readonly (readonly [wire: ClientWire, file: string, union: string])[] = [
  ['messages', path.join(ANTHROPIC, 'messages/messages.d.ts'), 'ToolUnion'],
  ['messages', path.join(ANTHROPIC, 'beta/messages/messages.d.ts'), 'BetaToolUnion'],
  ['chat', path.join(OPENAI, 'chat/completions/completions.d.ts'), 'ChatCompletionTool'],
  ['responses', path.join(OPENAI, 'responses/responses.d.ts'), 'Tool'],
  ['responses', path.join(OPENAI, 'beta/responses/responses.d.ts'), 'BetaTool'],
];

describe('the table of tools that providers run', () => {
  // Promise 22.5: the table knows every tool type of the providers' SDKs.
  it.each(UNIONS)('knows every tool type of the SDK: %s, %s, %s', (wire, file, union) => {
    const types = readToolTypes(file, union);
    expect(types.length).toBeGreaterThan(1);
    expect(types.filter((type) => findToolWork(wire, type) === null)).toEqual([]);
  });

  // Promise 22.5: each field of the SDKs' requests is read, or is known to raise no bill.
  it.each(BODIES)('each field of a request of the SDK is read or plain: %s, %s', (file, name) => {
    const found = readDeclarations(file).get(name);
    const fields = listBody(found!.body as Node).map(({ key }) => key!.name!);
    expect(fields.length).toBeGreaterThan(10);
    expect(fields.filter((field) => !BILLED_MEMBERS.has(field) && !PLAIN_FIELDS.has(field))).toEqual([]);
  });

  it.each(ClientWireSchema.options)('names pages and the day of reading: %s', (wire) => {
    const { pages, read_on } = getWireTools(wire);
    expect(pages.length).toBeGreaterThan(0);
    expect(read_on).toMatch(/^\d{4}-\d\d-\d\d$/);
  });

  it('knows no other type, not even names that every object has', () => {
    for (const type of ['constructor', '__proto__', 'Web_Search_20250305', 'web_search_20250305 ', ''])
      expect(findToolWork('messages', type)).toBeNull();
  });
});
