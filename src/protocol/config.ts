// Every configuration key with its type, range and default (15 §2). A key that is not here does not exist.
import { z } from 'zod';
import { ClusterSchema, DatabaseSchema, NatsSchema } from './config/cluster.ts';
import { GatewaySchema } from './config/gateway.ts';
import { NotifySchema } from './config/notify.ts';
import { McpServerNameSchema, McpServerSchema } from './mcp.ts';
import { ApprovalModeSchema, OnReachedSchema, UsdLimitSchema } from './scalars.ts';

const strings = z.array(z.string());
const MAX_DAYS = 36_500;
/** A century: whatever is due or cut off by it still has a time that can be written. */
const MAX_SECONDS = MAX_DAYS * 86_400;
const seconds = z.int().min(1).max(MAX_SECONDS);
const ToolModeSchema = z.enum(['auto', 'prompt', 'deny']);
export type ToolMode = z.infer<typeof ToolModeSchema>;

const CacheLifetimeSchema = z.enum(['auto', '5m', '1h']);

export const ConfigSchema = z.strictObject({
  server: z.strictObject({
    host: z.string().min(1),
    port: z.int().min(0).max(65_535),
    auth_tokens: z.array(z.string().min(32, 'must have at least 32 characters')),
    allowed_hosts: strings,
    cors_allowed_origins: z.array(z.string().refine((o) => o !== '*', '"*" is not allowed; list each origin')),
    workspace_roots: strings,
    body_limit_bytes: z.int().min(1),
    turn_body_limit_bytes: z.int().min(1),
    rate_limit_rpm: z.int().min(1).nullable(),
  }),
  shutdown: z.strictObject({ drain_seconds: z.int().min(0).max(MAX_SECONDS) }),
  log: z.strictObject({ level: z.enum(['fatal', 'error', 'warn', 'info', 'debug', 'trace']) }),
  recovery: z.strictObject({ on_start: z.enum(['resume', 'hold', 'cancel']) }),
  storage: z.strictObject({ db_path: z.string().min(1), synchronous: z.enum(['NORMAL', 'FULL']) }),
  database: DatabaseSchema,
  nats: NatsSchema,
  cluster: ClusterSchema,
  trace: z.strictObject({ retention_days: z.int().min(1).max(MAX_DAYS).nullable() }),
  registry: z.strictObject({ path: z.string().min(1) }),
  routing: z.strictObject({ global_path: z.string().min(1), global_default_model: z.string().nullable() }),
  turn: z.strictObject({
    max_llm_calls: z.int().min(1),
    max_output_tokens: z.int().min(1),
    timeout_seconds: seconds.nullable(),
  }),
  delegation: z
    .strictObject({
      max_depth: z.int().min(1).max(8),
      delegate_depth: z.int().min(1).max(8),
      max_workers_per_turn: z.int().min(1),
      worker_timeout_seconds: z.int().min(1).max(3600).nullable(),
      schema_repair_attempts: z.int().min(0).max(5),
      allow_dearer_fallback: z.boolean(),
      worker_max_cost_usd: UsdLimitSchema.nullable(),
    })
    .refine((d) => d.delegate_depth <= d.max_depth, {
      path: ['delegate_depth'],
      message: 'must not be above delegation.max_depth',
    }),
  stream: z.strictObject({ max_connections: z.int().min(1) }),
  analytics: z.strictObject({ savings_baseline: z.string().min(1) }),
  pricing: z.strictObject({ tables: z.array(z.string().min(1)).min(1), free_providers: strings }),
  tools: z.strictObject({
    disabled: strings,
    max_concurrent_per_session: z.int().min(1),
    timeouts: z.strictObject({ per_tool: z.record(z.string(), z.number().min(0).max(MAX_SECONDS)) }),
    shell: z.strictObject({
      sandbox: z.enum(['off', 'required']),
      sandbox_network: z.boolean(),
      env_passthrough: strings,
    }),
  }),
  tool_confirmation: z.strictObject({
    default: z.strictObject({
      none: ToolModeSchema,
      read: ToolModeSchema,
      write: ToolModeSchema,
      execute: ToolModeSchema,
      network: ToolModeSchema,
    }),
    per_tool: z.record(z.string(), ToolModeSchema),
    mode: ApprovalModeSchema,
    timeout_seconds: seconds,
  }),
  mcp_servers: z.record(McpServerNameSchema, McpServerSchema),
  mcp: z.strictObject({ project_files: z.boolean(), serve: z.boolean() }),
  notify: NotifySchema,
  context: z.strictObject({
    base_system_prompt: z.string(),
    project_instruction_files: strings,
    compaction: z.strictObject({ mode: z.enum(['off', 'elide', 'summarize']) }),
    cache_ttl: z.strictObject({ planner: CacheLifetimeSchema, worker: CacheLifetimeSchema }),
  }),
  skills: z.strictObject({ global_dir: z.string().min(1) }),
  providers: z.strictObject({ record: z.string().nullable(), replay: z.string().nullable() }),
  pattern: z.strictObject({
    enabled: z.boolean(),
    cost_weight: z.number().min(0).max(1),
    min_confidence: z.number().min(0).max(1),
    min_sample_size: z.int().min(1),
  }),
  eval: z.strictObject({ disabled: z.boolean() }),
  workers: z.strictObject({
    generated_dir: z.string().min(1),
    planner_allow_workers: strings,
    dynamic: z.boolean(),
    allow_approve_all: z.boolean(),
    creation: z.strictObject({
      default_model: z.string().nullable(),
      default_sandboxes: z.record(z.string(), z.unknown()),
      default_attachment_policy: z.record(z.string(), z.unknown()),
      default_allow_workers: strings,
      default_tool_rules: z.record(z.string(), z.unknown()),
      default_tools: strings,
    }),
  }),
  gateway: GatewaySchema,
  budgets: z.strictObject({
    session_default_usd: UsdLimitSchema.nullable(),
    daily_usd: UsdLimitSchema.nullable(),
    on_reached: OnReachedSchema,
    warn_ratio: z.number().gt(0).max(1),
    show_to_model: z.boolean(),
  }),
});
export type Config = z.infer<typeof ConfigSchema>;

/**
 * The built-in defaults.
 * @param data the data folder that replaces `~/.metis`
 */
export function defaultConfig(data: string): Config {
  return {
    server: {
      host: '127.0.0.1',
      port: 8420,
      auth_tokens: [],
      allowed_hosts: [],
      cors_allowed_origins: [],
      workspace_roots: [],
      body_limit_bytes: 1_048_576,
      turn_body_limit_bytes: 10_485_760,
      rate_limit_rpm: null,
    },
    shutdown: { drain_seconds: 10 },
    log: { level: 'info' },
    recovery: { on_start: 'resume' },
    storage: { db_path: `${data}/metis.db`, synchronous: 'NORMAL' },
    database: { url: null, pool_size: 10, synchronous_commit: 'on', start_timeout_seconds: null },
    nats: { url: null },
    cluster: {
      name: 'metis',
      node_name: null,
      advertise_url: null,
      lease_seconds: 15,
      max_turns: null,
      shared_roots: [],
      local_workspaces: false,
    },
    trace: { retention_days: 90 },
    registry: { path: `${data}/registry.yaml` },
    routing: { global_path: `${data}/routing.yaml`, global_default_model: null },
    turn: { max_llm_calls: 50, max_output_tokens: 4096, timeout_seconds: null },
    delegation: {
      max_depth: 5,
      delegate_depth: 1,
      max_workers_per_turn: 32,
      worker_timeout_seconds: 300,
      schema_repair_attempts: 2,
      allow_dearer_fallback: true,
      worker_max_cost_usd: null,
    },
    stream: { max_connections: 1000 },
    analytics: { savings_baseline: 'anthropic:claude-sonnet-4-6' },
    pricing: { tables: ['builtin'], free_providers: ['ollama'] },
    tools: {
      disabled: [],
      max_concurrent_per_session: 8,
      timeouts: { per_tool: {} },
      shell: { sandbox: 'off', sandbox_network: false, env_passthrough: [] },
    },
    tool_confirmation: {
      default: { none: 'auto', read: 'auto', write: 'prompt', execute: 'prompt', network: 'prompt' },
      per_tool: { delegate: 'auto' },
      mode: 'interactive',
      timeout_seconds: 300,
    },
    mcp_servers: {},
    mcp: { project_files: false, serve: true },
    notify: [],
    context: {
      base_system_prompt:
        "You are an agent in a developer's workspace. Use your tools to read, change and run what the task needs. Be concise: report what you did and found, nothing else.",
      project_instruction_files: ['AGENTS.md', 'CLAUDE.md'],
      compaction: { mode: 'elide' },
      cache_ttl: { planner: 'auto', worker: '5m' },
    },
    skills: { global_dir: `${data}/skills` },
    providers: { record: null, replay: null },
    pattern: { enabled: true, cost_weight: 0.05, min_confidence: 0.05, min_sample_size: 5 },
    eval: { disabled: false },
    workers: {
      generated_dir: `${data}/generated-workers`,
      planner_allow_workers: [],
      dynamic: false,
      allow_approve_all: false,
      creation: {
        default_model: null,
        default_sandboxes: {},
        default_attachment_policy: {},
        default_allow_workers: [],
        default_tool_rules: {
          'sandbox.read': { allowed: true, approval_required: false },
          'sandbox.write': { allowed: true, approval_required: true },
        },
        default_tools: [],
      },
    },
    gateway: {
      credentials: 'server',
      rules_apply_to: 'none',
      keys: {},
      wait_seconds: 120,
      min_output_tokens: 4096,
      body_limit_bytes: 33_554_432,
      max_streams: 256,
      record: null,
    },
    budgets: { session_default_usd: null, daily_usd: null, on_reached: 'pause', warn_ratio: 0.8, show_to_model: true },
  };
}
