// The OpenAPI document held against every answer of a test's server: its operation, its status, its type, its body.
import fs from 'node:fs';
import path from 'node:path';
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import { onTestFinished } from 'vitest';
import type { HttpApp } from '#http/http-app.ts';
import { inlineResponses } from '#http/openapi.ts';
import type { Parsed } from './http.ts';

const FILE = path.resolve(import.meta.dirname, '../../openapi/openapi.json');
/** The committed document; `test/api/openapi.test.ts` says when it is out of date. */
export const openApi: Parsed = inlineResponses(JSON.parse(fs.readFileSync(FILE, 'utf8')));

export interface DocumentedOperation {
  readonly id: string;
  /** In capitals. */
  readonly method: string;
  /** With its parameters in braces. */
  readonly url: string;
  readonly item: Parsed;
}
export const operations: readonly DocumentedOperation[] = Object.entries<Parsed>(openApi.paths).flatMap(([url, item]) =>
  Object.entries<Parsed>(item).map(([method, operation]) => ({
    id: operation.operationId,
    method: method.toUpperCase(),
    url,
    item: operation,
  })),
);

const patterns = operations.map(({ url, method, id }) => ({
  match: new RegExp(`^${url.replaceAll('.', '\\.').replaceAll(/\{\w+\}/g, '[^/]+')}$`),
  method,
  id,
}));

/** The operation of a request target; null where the document has none. */
export function operationOf(method: string, target: string): DocumentedOperation | null {
  const where = target.split(/[?#]/, 1)[0] ?? '';
  const id = patterns.find((pattern) => pattern.method === method && pattern.match.test(where))?.id;
  return operations.find((operation) => operation.id === id) ?? null;
}

// Compiled anew by each process: shared parts once, and nothing is optimized. 1.7 ms of processor time a schema, not 5.3.
const ajv = new Ajv2020({ strict: false, validateFormats: false, inlineRefs: false, code: { optimize: false } });
ajv.addSchema(openApi, 'doc');
const compiled = new Map<string, ValidateFunction>();

/** The schema at a place of the document. */
export function validatorAt(...place: readonly string[]): ValidateFunction {
  const pointer = place.map((part) => encodeURIComponent(part.replaceAll('~', '~0').replaceAll('/', '~1'))).join('/');
  const known = compiled.get(pointer) ?? ajv.compile({ $ref: `doc#/${pointer}` });
  compiled.set(pointer, known);
  return known;
}

export interface SentAnswer {
  readonly method: string;
  readonly target: string;
  readonly status: number;
  /** Content-Type, '' without. */
  readonly type: string;
  readonly text: string;
}

/** What the document does not say of this answer; null when it is as documented. */
export function contractFault({ method, target, status, type, text }: SentAnswer): string | null {
  const at = `${method} ${target.length > 200 ? `${target.slice(0, 200)}… (${target.length})` : target} ${status}`;
  const media = type.split(';')[0] ?? '';
  // An answer without a body: its GET is the one to look at.
  if (method === 'HEAD') return status === 500 ? at : null;
  const operation = operationOf(method, target);
  if (operation === null) {
    // The dashboard's files are no operations (17 §3).
    if (/^(\/?|\/assets\/.*)$/.test(target.split(/[?#]/, 1)[0] ?? '') && [200, 304].includes(status)) return null;
    if (method === 'OPTIONS' && status === 204) return null;
    // Doors of other programs answer in their clients' envelopes (19).
    if (/^\/(mcp|v1\/.*)$/.test(target.split(/[?#]/, 1)[0] ?? '')) return null;
    // HEAD is the GET of a probe without its body.
    if (method === 'HEAD' && status === 200 && operationOf('GET', target) !== null) return null;
    // No such path, or not with this method: only the gates can have answered.
    if (media !== 'application/json') return `${at}: an answer of ${media || 'no type'} without an operation`;
    return faultOf(at, validatorAt('components', 'schemas', 'ErrorEnvelope'), text);
  }
  const answer = operation.item.responses[status];
  if (answer === undefined) return `${at}: not a status of ${operation.id}`;
  if (answer.content === undefined) return text === '' ? null : `${at}: ${operation.id} has no body with this status`;
  if (answer.content[media] === undefined) return `${at}: not the type of ${operation.id}: ${media || 'none'}`;
  if (media !== 'application/json') return null;
  const place = ['paths', operation.url, method.toLowerCase(), 'responses', String(status), 'content', media, 'schema'];
  return faultOf(at, validatorAt(...place), text);
}

function faultOf(at: string, validate: ValidateFunction, text: string): string | null {
  return validate(JSON.parse(text)) ? null : `${at}: ${ajv.errorsText(validate.errors)}: ${text.slice(0, 500)}`;
}

/** Checks every answer of the server from now on; the test fails at its end with what was not as documented. */
export function watchAnswers(app: HttpApp): { readonly answered: ReadonlySet<string> } {
  const answered = new Set<string>();
  const faults: string[] = [];
  app.addHook('onSend', async (request, reply, payload) => {
    const { method, url: target } = request;
    const { statusCode: status } = reply;
    const type = String(reply.getHeader('content-type') ?? '');
    const text = typeof payload === 'string' ? payload : '';
    const fault = contractFault({ method, target, status, type, text });
    if (fault !== null) faults.push(fault);
    answered.add(`${operationOf(method, target)?.id} ${status}`);
    return payload;
  });
  onTestFinished(() => {
    if (faults.length > 0) throw new Error(`not as the OpenAPI document says:\n${faults.join('\n')}`);
  });
  return { answered };
}
