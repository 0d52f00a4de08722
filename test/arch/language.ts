// The language of the source as its syntax trees and texts show it: names of functions, ternaries, words that the house does not use.
import { parse } from '@babel/parser';

/** A named function: a declaration, a constant that holds one, or a member of a class, object or interface. */
export interface NamedFunction {
  readonly name: string;
  readonly line: number;
  readonly isMember: boolean;
}

export interface Grammar {
  readonly functions: readonly NamedFunction[];
  readonly ternaries: number;
}

interface Node {
  readonly type: string;
  readonly loc?: { readonly start: { readonly line: number } };
  readonly [key: string]: unknown;
}

const isNode = (value: unknown): value is Node =>
  typeof value === 'object' && value !== null && typeof (value as Node).type === 'string';
const isFunction = (value: unknown) =>
  isNode(value) && (value.type === 'ArrowFunctionExpression' || value.type === 'FunctionExpression');
const readName = (value: unknown): string | null => {
  if (!isNode(value)) return null;
  if (value.type === 'Identifier') return value.name as string;
  return value.type === 'PrivateName' ? readName(value.id) : null;
};

/** @returns the name of the function that this node declares, and whether it is a member */
function readFunction(node: Node): { name: string | null; isMember: boolean } | null {
  switch (node.type) {
    case 'FunctionDeclaration':
    case 'TSDeclareFunction':
      return { name: readName(node.id), isMember: false };
    case 'VariableDeclarator':
      return isFunction(node.init) ? { name: readName(node.id), isMember: false } : null;
    case 'ClassMethod':
    case 'ClassPrivateMethod':
    case 'ObjectMethod':
    case 'TSMethodSignature':
      return { name: readName(node.key), isMember: true };
    case 'ObjectProperty':
    case 'ClassProperty':
    case 'ClassPrivateProperty':
      return isFunction(node.value) ? { name: readName(node.key), isMember: true } : null;
    default:
      return null;
  }
}

/** @param text a TypeScript file; `isTsx` for one with JSX */
export function readGrammar(text: string, isTsx: boolean): Grammar {
  const functions: NamedFunction[] = [];
  let ternaries = 0;
  const visit = (node: Node) => {
    if (node.type === 'ConditionalExpression') ternaries += 1;
    const found = readFunction(node);
    if (found !== null && found.name !== null)
      functions.push({ name: found.name, line: node.loc?.start.line ?? 0, isMember: found.isMember });
    for (const value of Object.values(node)) {
      if (Array.isArray(value)) value.filter(isNode).forEach(visit);
      else if (isNode(value)) visit(value);
    }
  };
  const plugins = isTsx ? (['typescript', 'jsx'] as const) : (['typescript'] as const);
  visit(parse(text, { sourceType: 'module', plugins: [...plugins] }).program as unknown as Node);
  return { functions, ternaries };
}

/** Functions are verbs with an object, predicates begin with is, has or can. */
export const PARTICIPLE =
  /^(?:told|said|shown|heard|asked|kept|held|made|given|taken|found|known|seen|sent|left|lost|met|read|written|drawn|spent|set|put|cut|built|bound|hidden|broken|chosen|spoken|thrown|understood|paid|(?!need|feed|seed|embed|speed|exceed|proceed|succeed|bleed|shed)[a-z]{2,}ed)$/;

/** Words of a private dialect, each with what to write instead. They are looked for in identifiers, comments, messages and pages. */
export const DIALECT: readonly (readonly [word: RegExp, instead: string])[] = [
  [/\b(?:told|tells?|telling)\b/i, 'notify, publish, report, state'],
  [/\b(?:said|says|saying)\b/i, 'text, message; states, returns, reports'],
  [/\bput down\b/i, 'interrupt'],
  [/\bturn(?:ed|s)? away\b/i, 'reject'],
  [/\bdear(?:er|est)?\b/i, 'expensive, more expensive'],
  [/\bmend(?:s|ed|ing)?\b/i, 'fix, repair'],
  [/\bstands? (?:beside|in|on|for|at|behind|above|below|still)\b/i, 'is, is mutually exclusive with, is listed in'],
  [/\bperson's (?:word|say)\b/i, 'approval'],
  [/\bwish(?:es|ed)?\b/i, 'options, wants'],
  [/\b(?:nobody|whoever|somebody)\b/i, 'no caller, the caller, a client'],
  [/\blast words\b/i, 'flush timeout'],
  [/\b(?:meddle|meddled|hurry|hurried)\b/i, 'change; shorten the grace period'],
  [/\bnot to be had\b/i, 'not available'],
  [/\bby itself\b(?= in)/i, 'alone'],
];

/** An identifier as words: `toldOnce` -> `told once`. */
export function splitWords(text: string): string {
  return text.replace(/([a-z0-9])([A-Z])/g, '$1 $2').replace(/[_]/g, ' ');
}

/** Names of the wire and of stored data that contain such words. A published name is not renamed. */
const WIRE_NAMES: readonly RegExp[] = [
  // Earlier names of `allow_costlier_fallback` and `fallback_costlier`, which are still read.
  /\ballow_dearer_fallback\b/g,
  /\bfallback_dearer\b/g,
  // The side of a quality comparison (07 §7.3), as a field and as the variable that holds it.
  /\bdearer(?=[:,.)'"]| })/g,
  // The kind of a bus frame that repeats messages in mid-stream: nodes of earlier versions read it (16 §6).
  /['`]said['`]/g,
  // The name of a database lock that nodes of earlier versions take for the sending of notices.
  /'telling receivers'/g,
];

/** A line as the check of words reads it: identifiers as words, without names of the wire. */
export function readWords(line: string): string {
  return splitWords(WIRE_NAMES.reduce((rest, name) => rest.replace(name, ''), line));
}
