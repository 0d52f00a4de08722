// Routing rules of one policy file: name, condition, model (03 §6.2, §6.3).

import { Decimal } from 'decimal.js';
import { type Pusd, toPusd, USD_DIGITS } from '#protocol/money.ts';
import type { TurnContext } from '#protocol/route.ts';
import { sha256Hex } from '#protocol/text/canonical-json.ts';
import { readErrorMessage } from '#protocol/text/error-message.ts';
import { createPatternSet, type PatternSet } from '../parsing/regular-expression.ts';
import { isMapping } from '../parsing/yaml.ts';

// The closed set of conditions of routing rules (03 §6.3): compiled once at load, evaluated on every turn.

/** Maximum characters of a message that are searched. */
export const MATCH_LIMIT = 20_000;
const MAX_DEPTH = 32;
/** Maximum size of all regular expressions of a file: matching blocks the event loop. */
const MAX_STEPS = 2000;
const TOO_LARGE = 'the regular expressions of the file are too large together';
/** Maximum characters of all words of a file: each word is searched separately. */
const MAX_WORDS = 10_000;
/** Characters of a model's name with stars in it. */
const MAX_GLOB = 256;
/** `(?i)` and the like at the start: the only way to write flags into the pattern itself. */
const LEADING_FLAGS = /^\(\?([ims]+)\)/;

/** Inputs of the predicates, built once per decision. */
export interface RuleFacts {
  /** Whether the message has what the predicate searches for; answered once. */
  readonly isFound: (predicate: TextPredicate) => boolean;
  readonly estimated_input_tokens: number;
  readonly message_has_images: boolean;
  readonly cost_today_pusd: Pusd;
  readonly is_worker: boolean;
  /** Null outside the gateway. */
  readonly requested_model: string | null;
}
/** Never throws. */
type Predicate = (facts: RuleFacts) => boolean;

/** A condition on the text of the message. */
export interface TextPredicate {
  /** Equal for equal conditions of any file. */
  readonly key: string;
  readonly isIn: (message: SearchedText) => boolean;
}

interface SearchedText {
  readonly lowerText: () => string;
  /** Which expressions of a file are found in the text. */
  readonly findMatches: (patterns: PatternSet) => ReadonlySet<number>;
}

/** Digits of a predicate's key: a decision notes up to 64 of them. */
const KEY_LENGTH = 8;

function createKey(name: string, parts: readonly string[]): string {
  return sha256Hex(JSON.stringify([name, ...parts])).slice(0, KEY_LENGTH);
}
type Compile = (value: unknown, at: string, errors: string[], scope: Scope) => Predicate;

/** Position of a predicate. */
interface Scope {
  /** Number of enclosing predicates. */
  readonly depth: number;
  readonly spent: Spent;
  /** Expressions of the whole file. */
  readonly patterns: PatternSet;
  /** Conditions on the text so far. */
  readonly texts: TextPredicate[];
}
/** Cost so far of searching a message for all expressions and words of the file. */
interface Spent {
  /** Steps of the regular expressions for a character. */
  steps: number;
  /** Characters of the words. */
  words: number;
}

/** The position of a file's outermost predicates. */
export function fileScope(): Scope {
  return { depth: 0, spent: { steps: 0, words: 0 }, patterns: createPatternSet(), texts: [] };
}

export function collectFacts(ctx: TurnContext): RuleFacts {
  const message = searchText(ctx.user_message_text.slice(0, MATCH_LIMIT));
  const found = new Map<TextPredicate, boolean>();
  return {
    isFound(predicate) {
      const known = found.get(predicate) ?? predicate.isIn(message);
      found.set(predicate, known);
      return known;
    },
    estimated_input_tokens: ctx.estimated_input_tokens,
    message_has_images: ctx.message_has_images,
    cost_today_pusd: ctx.cost_today_pusd,
    is_worker: ctx.is_worker,
    requested_model: ctx.requested?.name ?? null,
  };
}

function searchText(text: string): SearchedText {
  let lower: string | null = null;
  const found = new Map<PatternSet, ReadonlySet<number>>();
  return {
    lowerText: () => {
      lower ??= text.toLowerCase();
      return lower;
    },
    findMatches: (patterns) => {
      const known = found.get(patterns) ?? patterns.match(text);
      found.set(patterns, known);
      return known;
    },
  };
}

/**
 * Compiles one predicate mapping; several keys must all hold.
 * Faults are appended to `errors` as `<path>: <problem>`; the result must then be ignored.
 */
export function compilePredicate(value: unknown, at: string, errors: string[], scope: Scope = fileScope()): Predicate {
  if (scope.depth > MAX_DEPTH) return reportFault(errors, `${at}: nested deeper than ${MAX_DEPTH} predicates`);
  if (!isMapping(value) || Object.keys(value).length === 0) {
    return reportFault(errors, `${at}: must be a mapping with at least one predicate`);
  }
  const unknown = Object.keys(value).filter((key) => !Object.hasOwn(COMPILERS, key));
  if (unknown.length > 0) errors.push(`${at}: unknown predicate key(s) [${unknown.join(', ')}]`);
  const parts = Object.entries(value)
    .filter(([key]) => Object.hasOwn(COMPILERS, key))
    .map(([key, operand]) => COMPILERS[key]!(operand, `${at}.${key}`, errors, scope));
  return combineAll(parts);
}

function isInteger(value: unknown): value is number {
  return Number.isInteger(value);
}

function isWordList(value: unknown): value is readonly string[] {
  if (!Array.isArray(value) || value.length === 0) return false;
  return value.every((word) => typeof word === 'string' && word !== '');
}

const COMPILERS: Readonly<Record<string, Compile>> = {
  message_matches(value, at, errors, { spent, patterns, texts }) {
    if (typeof value !== 'string') return reportFault(errors, `${at}: must be a regular expression as a string`);
    if (spent.steps > MAX_STEPS) return reportFault(errors, `${at}: ${TOO_LARGE}`);
    try {
      const [prefix = '', flags] = LEADING_FLAGS.exec(value) ?? [];
      const pattern = patterns.add(value.slice(prefix.length), flags);
      spent.steps += pattern.steps;
      if (spent.steps > MAX_STEPS) return reportFault(errors, `${at}: ${TOO_LARGE}`);
      return addText(texts, {
        key: createKey('message_matches', [value]),
        isIn: ({ findMatches }) => findMatches(patterns).has(pattern.at),
      });
    } catch (thrown) {
      return reportFault(errors, `${at}: ${readErrorMessage(thrown)}`);
    }
  },
  message_contains_any(value, at, errors, { spent, texts }) {
    if (!isWordList(value)) return reportFault(errors, `${at}: must be a list of at least one non-empty string`);
    for (const word of value) spent.words += word.length;
    if (spent.words > MAX_WORDS)
      return reportFault(errors, `${at}: the words of the file have more than ${MAX_WORDS} characters together`);
    const lower = value.map((word) => word.toLowerCase());
    return addText(texts, {
      key: createKey('message_contains_any', [...new Set(lower)].sort()),
      isIn: ({ lowerText }) => lower.some((word) => lowerText().includes(word)),
    });
  },
  estimated_input_tokens_gt(value, at, errors) {
    if (!isInteger(value)) return reportFault(errors, `${at}: must be an integer`);
    return (facts) => facts.estimated_input_tokens > value;
  },
  estimated_input_tokens_lt(value, at, errors) {
    if (!isInteger(value)) return reportFault(errors, `${at}: must be an integer`);
    return (facts) => facts.estimated_input_tokens < value;
  },
  has_images(value, at, errors) {
    if (typeof value !== 'boolean') return reportFault(errors, `${at}: must be true or false`);
    return (facts) => facts.message_has_images === value;
  },
  cost_today_exceeds_usd(value, at, errors) {
    if (typeof value !== 'number' || !Number.isFinite(value)) return reportFault(errors, `${at}: must be a number`);
    // Rounded down to whole picodollars: a cost is above the limit exactly if it is above this.
    const limit = toPusd(new Decimal(value).toDecimalPlaces(USD_DIGITS, Decimal.ROUND_FLOOR).toFixed());
    return (facts) => facts.cost_today_pusd > limit;
  },
  is_worker(value, at, errors) {
    if (typeof value !== 'boolean') return reportFault(errors, `${at}: must be true or false`);
    return (facts) => facts.is_worker === value;
  },
  requested_model(value, at, errors) {
    if (typeof value !== 'string' || value === '' || value.length > MAX_GLOB)
      return reportFault(
        errors,
        `${at}: must be a name of at most ${MAX_GLOB} characters, in which * matches any text`,
      );
    const parts = value.split('*');
    return ({ requested_model: name }) => name !== null && matchesGlob(name, parts);
  },
  any_of(value, at, errors, scope) {
    const parts = compileList(value, at, errors, scope);
    return (facts) => parts.some((part) => part(facts));
  },
  all_of: (value, at, errors, scope) => combineAll(compileList(value, at, errors, scope)),
  not(value, at, errors, scope) {
    const part = compilePredicate(value, at, errors, enterScope(scope));
    return (facts) => !part(facts);
  },
};

function addText(texts: TextPredicate[], predicate: TextPredicate): Predicate {
  texts.push(predicate);
  return ({ isFound }) => isFound(predicate);
}

/** Whether the name has the parts in their order, the first at its start and the last at its end. */
function matchesGlob(name: string, parts: readonly string[]): boolean {
  const [first, ...rest] = parts;
  const last = rest.pop();
  if (last === undefined) return name === first;
  if (!name.startsWith(first!) || !name.endsWith(last)) return false;
  let at = first!.length;
  for (const part of rest) {
    const found = name.indexOf(part, at);
    if (found < 0) return false;
    at = found + part.length;
  }
  return at <= name.length - last.length;
}

function combineAll(parts: readonly Predicate[]): Predicate {
  if (parts.length === 1) return parts[0]!;
  return (facts) => parts.every((part) => part(facts));
}

function compileList(value: unknown, at: string, errors: string[], scope: Scope): Predicate[] {
  if (!Array.isArray(value) || value.length === 0) {
    return [reportFault(errors, `${at}: must be a list of at least one predicate`)];
  }
  return value.map((item, i) => compilePredicate(item, `${at}[${i}]`, errors, enterScope(scope)));
}

function enterScope(scope: Scope): Scope {
  return { ...scope, depth: scope.depth + 1 };
}

function reportFault(errors: string[], line: string): Predicate {
  errors.push(line);
  return () => false;
}

export interface Rule {
  readonly name: string;
  /** The condition as written. */
  readonly when: unknown;
  /** Canonical model id. */
  readonly use: string;
  readonly matches: Predicate;
  /** Its conditions on the text. */
  readonly texts: readonly TextPredicate[];
}

const RULE_KEYS = new Set(['name', 'when', 'use']);

/**
 * Compiles the list in order; names are unique in it, a rule without one is called `rule_<index>`.
 * Faults are appended to `errors` as `<path>: <problem>`.
 * @param modelRef gives the canonical id of a model reference, or appends its fault and gives null
 */
export function compileRules(
  value: unknown,
  at: string,
  errors: string[],
  modelRef: (value: unknown, at: string) => string | null,
): Rule[] {
  if (!Array.isArray(value)) {
    errors.push(`${at}: must be a list`);
    return [];
  }
  const names = new Set<string>();
  const scope = fileScope();
  return value.flatMap((entry: unknown, i): Rule[] => {
    const path = `${at}[${i}]`;
    if (!isMapping(entry)) {
      errors.push(`${path}: must be a mapping with the keys when and use`);
      return [];
    }
    const unknown = Object.keys(entry).filter((key) => !RULE_KEYS.has(key));
    if (unknown.length > 0) errors.push(`${path}: unknown key(s) [${unknown.join(', ')}]`);

    const name = entry.name ?? `rule_${i}`;
    if (typeof name !== 'string' || name === '') errors.push(`${path}.name: must be a non-empty string`);
    else if (names.has(name)) errors.push(`${path}.name: duplicate name`);
    else names.add(name);

    if (entry.when == null) errors.push(`${path}.when: is required`);
    const before = scope.texts.length;
    const matches = entry.when == null ? () => false : compilePredicate(entry.when, `${path}.when`, errors, scope);
    if (entry.use == null) errors.push(`${path}.use: is required`);
    const use = entry.use == null ? null : modelRef(entry.use, `${path}.use`);
    if (use === null) return [];
    return [{ name: String(name), when: entry.when, use, matches, texts: scope.texts.slice(before) }];
  });
}
