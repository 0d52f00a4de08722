// Checks the key of an adapter with one free request: the list of models, or OpenRouter's information about the key (17 §2).
import { type AdapterConfig, anthropicVersion } from '#core/policy/registry/adapter-config.ts';
import type { Clock } from '#protocol/clock.ts';
import { scrub } from '#protocol/text/scrub.ts';
import { type HttpResponse, networkFault, type Send } from '../http/provider-http.ts';
import { classify, readWireError } from '../wire/fault.ts';
import { DEFAULT_BASE_URLS } from './create-adapters.ts';

const TIMEOUT_SECONDS = 15;
/** Maximum bytes read of an answer. */
const MAX_ANSWER = 64 * 1024;

export interface KeyCheck {
  /** `untested`: the response contains no statement about the key. */
  readonly verdict: 'accepted' | 'rejected' | 'untested';
  /** The provider's answer, or the reason for its absence. */
  readonly answer: string;
}

export interface KeyCheckSetup {
  readonly config: AdapterConfig;
  readonly found: { readonly key: string | null; readonly base_url: string | null };
  readonly send: Send;
  readonly clock: Clock;
  readonly secrets: readonly string[];
}

/** Never throws. Null for an adapter without an address. */
export async function checkKey({ config, found, send, clock, secrets }: KeyCheckSetup): Promise<KeyCheck | null> {
  const { type } = config;
  if (type === 'scripted') return null;
  const base = (config.base_url ?? found.base_url ?? DEFAULT_BASE_URLS[type]).replace(/\/+$/, '');
  const path = { anthropic: '/v1/models?limit=1', openai: '/models', openrouter: '/key' }[type];
  const over = new AbortController();
  const timer = clock.after(TIMEOUT_SECONDS * 1000, () => over.abort(new Error(`no answer for ${TIMEOUT_SECONDS} s`)));
  try {
    const response = await send({
      method: 'GET',
      url: `${base}${path}`,
      headers: buildHeaders(config, found.key?.trim() || null),
      body: [],
      signal: over.signal,
      of: null,
    });
    return readVerdict(response.status, await readAnswer(response), secrets);
  } catch (error) {
    const { error_detail, message } = networkFault(error);
    return { verdict: 'untested', answer: scrub(error_detail ?? message, { secrets }) };
  } finally {
    timer.cancel();
  }
}

function buildHeaders(config: AdapterConfig, key: string | null): Record<string, string> {
  const { type, extra_headers } = config;
  const own: Record<string, string> = { accept: 'application/json', 'user-agent': 'metis' };
  if (type === 'anthropic') own['anthropic-version'] = anthropicVersion(config);
  if (key !== null) {
    if (type === 'anthropic') own['x-api-key'] = key;
    else own.authorization = `Bearer ${key}`;
  }
  for (const [name, value] of Object.entries(extra_headers)) own[name.toLowerCase()] = value;
  return own;
}

function readVerdict(status: number, body: unknown, secrets: readonly string[]): KeyCheck {
  if (status >= 200 && status < 300) return { verdict: 'accepted', answer: String(status) };
  const error = readWireError(body);
  const [error_class] = classify(error, status);
  const words = error === null ? '' : ` ${scrub(error.message, { secrets })}`;
  return { verdict: error_class === 'auth' ? 'rejected' : 'untested', answer: `${status}${words.slice(0, 300)}` };
}

/** Undefined if the answer is too large or not JSON. */
async function readAnswer(response: HttpResponse): Promise<unknown> {
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  for (let piece = await response.readPiece(); piece !== null; piece = await response.readPiece()) {
    pieces.push(piece);
    bytes += piece.byteLength;
    if (bytes <= MAX_ANSWER) continue;
    response.cancel();
    return undefined;
  }
  try {
    return JSON.parse(Buffer.concat(pieces).toString());
  } catch {
    return undefined;
  }
}
