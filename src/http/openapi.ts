// The API contract as documents, generated from the schemas that validate the traffic (05 §5).

import { STATUS_CODES } from 'node:http';
import swagger from '@fastify/swagger';
import websocket from '@fastify/websocket';
import fastify from 'fastify';
import { createJsonSchemaTransform, createJsonSchemaTransformObject } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { NodeSchema } from '#protocol/api/server-bodies.ts';
import { ConfirmationDetailSchema, ConfirmationSchema } from '#protocol/confirmation.ts';
import { DelegationSchema } from '#protocol/delegate.ts';
import { ERROR_CODES } from '#protocol/errors.ts';
import { AnyEventSchema, EventSchema } from '#protocol/event.ts';
import { MessageSchema } from '#protocol/message.ts';
import { ModelSchema } from '#protocol/model.ts';
import { SIGNED_USD_PATTERN, USD_PATTERN } from '#protocol/money.ts';
import { UsdLimitSchema } from '#protocol/scalars.ts';
import { SessionSchema } from '#protocol/session.ts';
import { compareText } from '#protocol/text/compare-text.ts';
import { TurnSchema } from '#protocol/turn.ts';
import type { HttpApp, RouteDeps } from './http-app.ts';
import { type DescribedSchema, getErrorSchema, REQUEST_HEADERS, type RequestHeader } from './operation.ts';
import { requestValidator } from './params.ts';
import { registerRoutes } from './register-routes.ts';
import { SubscribeQueryFields } from './stream/subscription.ts';

type Json = Record<string, unknown>;

const SHARED = {
  Node: NodeSchema,
  Session: SessionSchema,
  Turn: TurnSchema,
  Message: MessageSchema,
  Delegation: DelegationSchema,
  Confirmation: ConfirmationSchema,
  ConfirmationDetail: ConfirmationDetailSchema,
  Event: AnyEventSchema,
  Model: ModelSchema,
  ErrorEnvelope: getErrorSchema(ERROR_CODES),
};

const made = new Map<string, Promise<string>>();

/**
 * `/openapi.json` as text, made once per version.
 * @param version of the package
 */
export function openApiDocument(version: string): Promise<string> {
  const known = made.get(version) ?? describe(version);
  made.set(version, known);
  return known;
}

/** `/events.schema.json` as text. */
export function eventsDocument(): string {
  return text(z.toJSONSchema(EventSchema, { target: 'draft-2020-12' }));
}

/** The text of `.describe()`: zod keeps it in the global registry and not in that of the shared names. */
function withDescription({ zodSchema, jsonSchema }: { zodSchema: z.core.$ZodType; jsonSchema: Json }): void {
  const { description, 'x-metis-role': role } = (z.globalRegistry.get(zodSchema) ?? {}) as {
    readonly description?: string;
    readonly 'x-metis-role'?: string;
  };
  if (description !== undefined) jsonSchema.description ??= description;
  if (role !== undefined) jsonSchema['x-metis-role'] ??= role;
}

/** Registers all routes on an instance that never listens. */
async function describe(version: string): Promise<string> {
  const registry = z.registry<{ id: string }>();
  for (const [id, schema] of Object.entries(SHARED)) registry.add(schema, { id });
  const options = { schemaRegistry: registry, zodToJsonConfig: { override: withDescription } };
  const app: HttpApp = fastify({ exposeHeadRoutes: false });
  app.setValidatorCompiler(requestValidator);
  app.setSerializerCompiler(() => JSON.stringify);
  app.addHook('onRoute', ({ schema }) => {
    const described = schema as DescribedSchema | undefined;
    if (described?.describeAnswers === undefined) return;
    described.response = described.describeAnswers();
    delete described.describeAnswers;
  });
  await app.register(websocket);
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: { title: 'Metis', version, license: { name: 'Apache-2.0', identifier: 'Apache-2.0' } },
      components: { securitySchemes: { bearerAuth: { type: 'http', scheme: 'bearer' } } },
      security: [{ bearerAuth: [] }],
    },
    transform: createJsonSchemaTransform(options),
    transformObject: createJsonSchemaTransformObject(options),
  });
  // No handler ever runs here, so what handlers need need not be there.
  registerRoutes(app, { version, turnBodyLimit: 1, gatewayBodyLimit: 1, engine: {}, idempotency: {} } as RouteDeps);
  await app.ready();
  const document = tidy(app.swagger() as unknown as Json, false) as Json;
  await app.close();
  return text(withSharedResponses(withStreamFields(withHeaders(withSharedErrors(withoutInputCopies(document))))));
}

/** Components exist once per direction; ours are only ever answered. */
function withoutInputCopies(document: Json): Json {
  const components = document.components as { schemas: Json };
  const schemas = Object.fromEntries(Object.entries(components.schemas).filter(([name]) => name in SHARED));
  return { ...document, components: { ...components, schemas } };
}

interface Answer {
  description: string;
  content?: Record<string, { schema: Json }>;
}
interface Described {
  responses: Record<string, Answer>;
  parameters?: Parameter[];
  'x-headers'?: readonly RequestHeader[];
  'x-locates'?: boolean;
}
interface Parameter {
  readonly name: string;
  readonly in: string;
}
type Paths = Record<string, Record<string, Described>>;

/** Headers of answers that a client acts on. */
const ANSWER_HEADERS = {
  'WWW-Authenticate': 'Bearer',
  'Retry-After': 'Seconds until the same request may succeed.',
  Location: 'Path of the new resource.',
  'Idempotency-Replayed': 'true where a stored answer is repeated.',
} as const;

/** Request headers that an operation reads, and headers of its answers. */
function withHeaders(document: Json): Json {
  for (const path of Object.values(document.paths as Paths)) {
    for (const [method, { 'x-headers': asked = [], 'x-locates': locates = false, ...rest }] of Object.entries(path)) {
      const parameters = [
        ...(rest.parameters ?? []),
        ...asked.map((name) => ({
          name,
          in: 'header',
          required: false,
          description: REQUEST_HEADERS[name],
          schema: { type: 'string' },
        })),
      ];
      path[method] = { ...rest, ...(parameters.length > 0 && { parameters }) };
      for (const [status, answer] of Object.entries(rest.responses)) {
        const names: (keyof typeof ANSWER_HEADERS)[] = [];
        if (status === '401') names.push('WWW-Authenticate');
        if (status === '429' || status === '503') names.push('Retry-After');
        if (status.startsWith('2') && locates) names.push('Location');
        if (status.startsWith('2') && asked.includes('Idempotency-Key')) names.push('Idempotency-Replayed');
        const header = (name: keyof typeof ANSWER_HEADERS) => [
          name,
          { description: ANSWER_HEADERS[name], schema: { type: 'string' } },
        ];
        if (names.length > 0) Object.assign(answer, { headers: Object.fromEntries(names.map(header)) });
      }
    }
  }
  return document;
}

/** The socket takes the fields of the event stream in its URL, and judges them by frame: nothing validates them here. */
function withStreamFields(document: Json): Json {
  const paths = document.paths as Paths;
  const [events, stream] = ['events', 'stream'].map((end) => paths[`/sessions/{session_id}/${end}`]?.get);
  const fields = (events?.parameters ?? []).filter(({ name }) => name in SubscribeQueryFields);
  if (stream) stream.parameters = [...(stream.parameters ?? []), ...fields];
  return document;
}

/** Statuses under their names, and every error as the shared envelope narrowed to its codes. */
function withSharedErrors(document: Json): Json {
  for (const path of Object.values(document.paths as Paths)) {
    for (const { responses } of Object.values(path)) {
      for (const [status, answer] of Object.entries(responses)) {
        answer.description = STATUS_CODES[status] ?? status;
        const body = answer.content?.['application/json'];
        if (Number(status) >= 400 && body !== undefined) body.schema = narrowErrorCodes(body.schema);
      }
    }
  }
  return document;
}

/** An error answer of several operations is in the document once, under the name of its codes. */
function withSharedResponses(document: Json): Json {
  const shared = new Map<string, Answer>();
  for (const path of Object.values(document.paths as Paths)) {
    for (const operation of Object.values(path)) {
      const entries = Object.entries(operation.responses).map(([status, answer]) => {
        if (Number(status) < 400) return [status, answer];
        const name = nameErrorAnswer(answer);
        const known = shared.get(name) ?? answer;
        if (JSON.stringify(known) !== JSON.stringify(answer)) throw new Error(`two error answers are named ${name}`);
        shared.set(name, answer);
        return [status, { $ref: `#/components/responses/${name}` }];
      });
      operation.responses = Object.fromEntries(entries);
    }
  }
  const responses = Object.fromEntries([...shared].sort(([a], [b]) => compareText(a, b)));
  return { ...document, components: { ...(document.components as Json), responses } };
}

/** `[not_found, worker_locked]` -> `NotFoundWorkerLocked`. */
function nameErrorAnswer({ content }: Answer): string {
  const schema = content?.['application/json']?.schema as unknown as NarrowedError;
  const words = schema.allOf[1].properties.error.properties.code.enum.flatMap((code) => code.split('_'));
  return words.map((word) => word.charAt(0).toUpperCase() + word.slice(1)).join('');
}

interface NarrowedError {
  readonly allOf: readonly [
    Json,
    {
      readonly properties: { readonly error: { readonly properties: { readonly code: { readonly enum: string[] } } } };
    },
  ];
}

/** A parsed document whose operations hold their error answers themselves, for readers that follow no references. */
export function inlineResponses<Document extends object>(document: Document): Document {
  const { components, paths } = document as unknown as {
    components: { responses: Record<string, Answer> };
    paths: Paths;
  };
  for (const path of Object.values(paths)) {
    for (const { responses } of Object.values(path)) {
      for (const [status, answer] of Object.entries(responses)) {
        const { $ref } = answer as { readonly $ref?: string };
        if ($ref !== undefined) responses[status] = components.responses[$ref.split('/').at(-1)!]!;
      }
    }
  }
  return document;
}

function narrowErrorCodes(schema: Json): Json {
  const { properties } = schema as { properties: { error: { properties: { code: Json } } } };
  const { code } = properties.error.properties;
  return {
    allOf: [
      { $ref: '#/components/schemas/ErrorEnvelope' },
      { type: 'object', properties: { error: { type: 'object', properties: { code } } } },
    ],
  };
}

const LIMIT_PATTERN = z.toJSONSchema(UsdLimitSchema).pattern;
const DECIMALS = new Set<unknown>([USD_PATTERN.source, SIGNED_USD_PATTERN.source, LIMIT_PATTERN]);

/**
 * The house style of schemas: nullability as a list of types, decimals named, and closed objects in requests only,
 * because answers may grow.
 */
function tidy(value: unknown, request: boolean): unknown {
  if (Array.isArray(value)) return value.map((item) => tidy(item, request));
  if (typeof value !== 'object' || value === null) return value;
  const out: Json = {};
  for (const [key, member] of Object.entries(value)) {
    if (key === 'additionalProperties' && member === false && !request) continue;
    out[key] = tidy(member, request || key === 'requestBody');
  }
  if (DECIMALS.has(out.pattern ?? null)) out.format = 'decimal';
  return nullable(out);
}

/** `anyOf: [T, null]` as `type: [T, "null"]`, where T is a plain type. */
function nullable(schema: Json): Json {
  const { anyOf, ...rest } = schema;
  if (!Array.isArray(anyOf) || anyOf.length !== 2) return schema;
  const [inner, none] = anyOf as [Json, Json];
  if (none.type !== 'null' || typeof inner.type !== 'string') return schema;
  const members = Array.isArray(inner.enum) ? { enum: [...inner.enum, null] } : {};
  return { ...rest, ...inner, ...members, type: [inner.type, 'null'] };
}

function text(document: unknown): string {
  return `${JSON.stringify(document, null, 2)}\n`;
}
