// Regular expressions from outside: matched in linear time, bounded in size (03 §6.3, 09 §3).

import { RE2JS, RE2Set } from 're2js';
import { readErrorMessage } from '#protocol/text/error-message.ts';
import { joinLines } from '#protocol/text/plain-text.ts';

const MAX_LENGTH = 1000;
/** Instructions of one compiled expression; a match takes at most this many steps for a character. */
const MAX_PROGRAM = 500;

export interface Pattern {
  /** Whether the expression matches anywhere in the text. */
  test(text: string): boolean;
  /** Size of the compiled expression: a match takes at most this many steps for a character. */
  readonly steps: number;
}

/** Maximum memory of a set's cached states, which grow with the text; beyond it, matching continues without the cache. */
const MAX_SET_BYTES = 4 * 1024 * 1024;

/** A set of expressions that are matched against the same text in one pass. */
export interface PatternSet {
  /** Adds an expression before the first match. Throws as `compilePattern`. Returns its index in the set and its size. */
  add(source: string, flags?: string): { readonly at: number; readonly steps: number };
  /** Indexes of the expressions that match anywhere in the text. */
  match(text: string): ReadonlySet<number>;
}

const FLAGS: Readonly<Record<string, number>> = {
  i: RE2JS.CASE_INSENSITIVE,
  m: RE2JS.MULTILINE,
  s: RE2JS.DOTALL,
};

/**
 * Compiles JavaScript syntax without look-around and back references, which no engine matches in linear time.
 * Throws an error whose message is one line.
 * @param flags any of `i`, `m` and `s`
 */
export function compilePattern(source: string, flags = ''): Pattern {
  if (source.length > MAX_LENGTH) throw new Error(`the regular expression has more than ${MAX_LENGTH} characters`);
  const pattern = compileSyntax(source, flags);
  const steps = pattern.programSize();
  if (steps > MAX_PROGRAM) throw new Error('the regular expression is too large; use smaller repeat counts');
  return { test: (text) => pattern.test(text), steps };
}

/** 50 expressions over a message of 2,600 characters take 45 µs together; a single one takes 3 to 60 µs. */
export function createPatternSet(): PatternSet {
  const set = new RE2Set(RE2Set.UNANCHORED, 0, MAX_SET_BYTES);
  let only: Pattern | null = null;
  return {
    add(source, flags = '') {
      const pattern = compilePattern(source, flags);
      const at = set.add(`${formatFlags(flags)}${RE2JS.translateRegExp(source)}`);
      only = null;
      if (at === 0) only = pattern;
      return { at, steps: pattern.steps };
    },
    match(text) {
      if (only === null) return new Set(set.match(text));
      if (only.test(text)) return new Set([0]);
      return new Set();
    },
  };
}

function formatFlags(flags: string): string {
  if (flags === '') return '';
  return `(?${flags})`;
}

function compileSyntax(source: string, flags: string): RE2JS {
  try {
    return RE2JS.compile(
      RE2JS.translateRegExp(source),
      [...flags].reduce((bits, flag) => bits | (FLAGS[flag] ?? 0), 0),
    );
  } catch (error) {
    const detail = joinLines(readErrorMessage(error).replace(/^error parsing regexp: /, ''));
    throw new Error(`Invalid regular expression: ${detail}${explainUnsupported(source)}`);
  }
}

function explainUnsupported(source: string): string {
  if (!/\(\?<?[=!]|\\[1-9k]/.test(source)) return '';
  return '; look-around and back references are not supported';
}
