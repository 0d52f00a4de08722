// `metis case run`: runs a case on an embedded server, with its answers as provider, in a fresh copy of its start (21 §3).
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { stringify } from 'yaml';
import { explainFileError, printMessage } from '#cli/terminal.ts';
import { type Confirmation, createMetisClient, type MetisClient } from '#client/client.ts';
import { compilePattern } from '#core/policy/parsing/regular-expression.ts';
import { diffTexts } from '#core/policy/session/case-request.ts';
import { silentLogger } from '#core/ports/logger.ts';
import { createCaseAdapter } from '#models/recorded/case-adapter.ts';
import { sleep, systemClock } from '#protocol/clock.ts';
import { type Config, ConfigSchema, defaultConfig } from '#protocol/config.ts';
import { StartupError } from '#protocol/errors.ts';
import { createIdGenerator } from '#protocol/ids.ts';
import { fromPusd, toPusd } from '#protocol/money.ts';
import { canonicalJson } from '#protocol/text/canonical-json.ts';
import { readErrorMessage } from '#protocol/text/error-message.ts';
import { hashFiles } from '#tools/workspace/hash-files.ts';
import { createServer } from '../compose.ts';
import type { CommandContext } from '../context.ts';
import { createCredentials } from '../credentials.ts';
import {
  type CaseAnswers,
  createCaseAnswers,
  DATA,
  hidePlaces,
  type Place,
  showPlaces,
  WORKSPACE,
} from './case-answers.ts';
import {
  type Case,
  CaseError,
  type CaseFile,
  type Outcome,
  readCase,
  readSessionOutcome,
  START_BUNDLE,
} from './case-files.ts';
import { type Check, formatJunit, type JunitResult } from './junit.ts';

export interface RunCaseFlags {
  readonly workspace?: string;
  readonly junit?: string;
  readonly json?: boolean;
}

const EXIT = { passed: 0, differs: 1, notRun: 2 } as const;

/** Exit code: 0 everything holds, 1 something differs, 2 the case could not run. */
export async function runCase(context: CommandContext, dir: string, flags: RunCaseFlags): Promise<number> {
  const began = systemClock.monotonic();
  const folder = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), 'metis-case-')));
  const place = path.resolve(context.cwd, dir);
  const writeJunit = (result: JunitResult): boolean => {
    if (flags.junit === undefined) return true;
    const seconds = (systemClock.monotonic() - began) / 1000;
    try {
      fs.writeFileSync(path.resolve(context.cwd, flags.junit), formatJunit(path.basename(place), result, seconds));
      return true;
    } catch (error) {
      printMessage(context.stderr, `${flags.junit} cannot be written: ${explainFileError(error)}`);
      return false;
    }
  };
  try {
    const found = readCase(place);
    const given = flags.workspace === undefined ? null : path.resolve(context.cwd, flags.workspace);
    const workspace = await makeWorkspace(context, found.file, { dir: place, folder, given });
    const { outcome, answers, approvals } = await playCase(context, found, { folder, workspace });
    const checks = checkRun(found.file, outcome, { answers, approvals });
    const isWritten = writeJunit({ checks, error: null });
    if (flags.json) context.stdout.write(`${JSON.stringify({ checks, outcome })}\n`);
    else context.stdout.write(formatChecks(checks));
    if (!isWritten) return EXIT.notRun;
    return checks.every(({ failure }) => failure === null) ? EXIT.passed : EXIT.differs;
  } catch (error) {
    const lines = error instanceof StartupError ? error.problems : [readErrorMessage(error)];
    for (const line of lines) printMessage(context.stderr, line);
    writeJunit({ checks: [], error: lines.join('\n') });
    return EXIT.notRun;
  } finally {
    fs.rmSync(folder, { recursive: true, force: true });
  }
}

/** A fresh copy of the workspace that the session began with. Throws `CaseError`. */
async function makeWorkspace(
  context: CommandContext,
  { start }: CaseFile,
  { dir, folder, given }: { readonly dir: string; readonly folder: string; readonly given: string | null },
): Promise<string> {
  const workspace = path.join(folder, 'workspace');
  if (given === null && start.kind === 'listing')
    throw new CaseError('the case holds no files; name a copy of its workspace with --workspace');
  if (given === null && start.kind === 'snapshot') {
    unpackBundle(context, path.join(dir, START_BUNDLE), workspace);
    const place = fs.realpathSync(path.join(workspace, start.prefix));
    if (path.relative(workspace, place).startsWith('..')) throw new CaseError('start.prefix: must lie in the snapshot');
    return place;
  }
  if (given === null || !fs.existsSync(given)) throw new CaseError(`--workspace ${given} does not exist`);
  fs.cpSync(given, workspace, { recursive: true, verbatimSymlinks: true });
  if (start.kind === 'listing') requireListing(start.files, await hashFiles(workspace));
  return fs.realpathSync(workspace);
}

function unpackBundle({ env }: CommandContext, bundle: string, workspace: string): void {
  fs.mkdirSync(workspace);
  const clean = {
    PATH: env.PATH,
    HOME: workspace,
    LC_ALL: 'C',
    GIT_CONFIG_GLOBAL: '/dev/null',
    GIT_CONFIG_NOSYSTEM: '1',
  };
  for (const args of [
    ['init', '-q', '-b', 'main'],
    ['fetch', '-q', bundle, '+refs/metis/*:refs/metis/*'],
    ['reset', '-q', '--hard', 'FETCH_HEAD'],
  ]) {
    const hooks = ['-c', 'core.hooksPath=/dev/null'];
    const { error, status, stderr } = spawnSync('git', [...hooks, ...args], {
      cwd: workspace,
      env: clean,
      encoding: 'utf8',
    });
    if (error === undefined && status === 0) continue;
    throw new CaseError(`${bundle} cannot be unpacked: git ${args[0]}: ${error?.message ?? stderr.trim()}`);
  }
}

function requireListing(before: Readonly<Record<string, string>>, now: Readonly<Record<string, string>>): void {
  for (const name of new Set([...Object.keys(before), ...Object.keys(now)]))
    if (before[name] !== now[name]) throw new CaseError(`the workspace is not the one of the case: ${name} differs`);
}

interface Played {
  readonly outcome: Awaited<ReturnType<typeof readSessionOutcome>>;
  readonly answers: CaseAnswers;
  /** Approvals that the case does not have, and those of the case that were not asked for. */
  readonly approvals: readonly string[];
}

async function playCase(
  context: CommandContext,
  { file, calls }: Case,
  { folder, workspace }: { readonly folder: string; readonly workspace: string },
): Promise<Played> {
  const dataDir = path.join(folder, 'data');
  fs.mkdirSync(dataDir);
  const places: readonly Place[] = [
    [workspace, WORKSPACE],
    [dataDir, DATA],
  ];
  const answers = createCaseAnswers(calls, places);
  const ids = createIdGenerator(() => systemClock.now(), Math.random);
  const { packageDir, version, env } = context;
  const server = await createServer({
    config: composeConfig(file, dataDir),
    credentials: createCredentials({}),
    log: silentLogger,
    packageDir,
    version,
    env,
    dataDir,
    keysFile: path.join(dataDir, '.env'),
    ids,
    provider: createCaseAdapter(ids, answers.take),
  });
  try {
    const { url } = await server.listen();
    const client = createMetisClient({ baseUrl: url });
    const { initial_active_model, ...settings } = file.session;
    const session = await client.createSession({ workspace_path: workspace, initial_active_model, ...settings });
    const desk = createDesk(client, session.id, showPlaces(file.approvals, places));
    for (const { content, model } of showPlaces(file.turns, places)) {
      const message = content.filter((block) => block.type === 'text' || block.type === 'image');
      const { turn_id } = await client.submitTurn(session.id, { content: message, per_message_override: model });
      await waitForTurn(client, session.id, turn_id, desk.answerOpen);
    }
    return {
      outcome: hidePlaces(await readSessionOutcome(client, session.id), places),
      answers,
      approvals: desk.listDifferences(),
    };
  } finally {
    await server.close();
  }
}

/** The settings of the recorded session on a server of its own. Throws `CaseError`. */
function composeConfig({ settings, registry, routing, prices, session }: CaseFile, dataDir: string): Config {
  const write = (name: string, text: string) => {
    const file = path.join(dataDir, name);
    fs.writeFileSync(file, text);
    return file;
  };
  const plain = structuredClone(defaultConfig(dataDir)) as unknown as Record<string, unknown>;
  for (const [key, value] of Object.entries(settings)) setKey(plain, key.split('.'), value);
  const parsed = ConfigSchema.safeParse(plain);
  if (!parsed.success)
    throw new CaseError(`settings: ${parsed.error.issues[0]?.path.join('.')}: not a setting of this version`);
  const config = parsed.data as Config;
  config.server.port = 0;
  config.server.rate_limit_rpm = null;
  config.registry.path = write(
    'registry.yaml',
    stringify({ adapters: { case: { type: 'scripted' } }, models: registry }),
  );
  config.routing.global_path = write('routing.yaml', stringify(routing));
  config.pricing.tables = [write('prices.json', JSON.stringify(prices))];
  if (session.approval_mode === 'approve_all') config.workers.allow_approve_all = true;
  return config;
}

function setKey(target: Record<string, unknown>, [name = '', ...rest]: readonly string[], value: unknown): void {
  if (name === '__proto__') return;
  if (rest.length === 0) {
    target[name] = value;
    return;
  }
  const section = target[name] ?? {};
  target[name] = section;
  setKey(section as Record<string, unknown>, rest, value);
}

const ASK_MS = 20;
const MAX_TURN_MS = 10 * 60_000;

async function waitForTurn(
  client: MetisClient,
  sessionId: string,
  turnId: string,
  answerOpen: () => Promise<void>,
): Promise<void> {
  const deadline = systemClock.monotonic() + MAX_TURN_MS;
  for (;;) {
    await answerOpen();
    const turn = await client.getTurn(sessionId, turnId);
    if (turn.ended_at !== null) return;
    if (turn.status === 'interrupted') throw new CaseError('a turn reached its limit and waits for money');
    if (systemClock.monotonic() > deadline) throw new CaseError('a turn did not end within 10 minutes');
    await sleep(systemClock, ASK_MS);
  }
}

/** Answers approvals as they were answered; one that the case does not have is rejected. */
function createDesk(client: MetisClient, sessionId: string, approvals: CaseFile['approvals']) {
  const left = [...approvals];
  const unknown: string[] = [];
  const findAnswer = async ({ confirmation_request_id: id, tool_name }: Confirmation) => {
    const { input } = await client.getConfirmation(id);
    const hasSameInput = (one: CaseFile['approvals'][number]) => canonicalJson(one.input) === canonicalJson(input);
    const named = left.filter((one) => one.tool_name === tool_name);
    const found = named.find(hasSameInput) ?? named[0];
    if (found !== undefined) left.splice(left.indexOf(found), 1);
    return found;
  };
  return {
    listDifferences: () => [
      ...unknown,
      ...left.map(({ tool_name }) => `${tool_name} did not ask for the approval that the case has`),
    ],
    async answerOpen() {
      const { confirmations } = await client.listConfirmations({ session_id: sessionId, status: 'pending' });
      for (const one of confirmations) {
        const { confirmation_request_id: id, tool_name } = one;
        const answer = await findAnswer(one);
        if (answer === undefined) unknown.push(`${tool_name} asked for an approval that the case does not have`);
        const { decision = 'reject', scope = 'once', reason = null, modified_input = null } = answer ?? {};
        await client.answerConfirmation(id, { decision, scope, reason, modified_input });
      }
    },
  };
}

/** @param answers the requests of the run; null where the case asserts, which leaves requests free */
export function checkRun(
  { expect, asserts }: Pick<CaseFile, 'expect' | 'asserts'>,
  outcome: Outcome,
  run: { readonly answers: CaseAnswers; readonly approvals: readonly string[] },
): readonly Check[] {
  if (asserts !== undefined) return checkAsserts(asserts, outcome);
  return [
    { name: 'requests', failure: describeRequests(run.answers) },
    { name: 'approvals', failure: run.approvals[0] ?? null },
    // Workers of one message begin in any order.
    { name: 'tools', failure: describeChange(sortKeys(expect.tools), sortKeys(outcome.tools)) },
    { name: 'files', failure: describeChange(expect.files, outcome.files) },
    { name: 'stop reason', failure: describeChange(expect.turns, outcome.turns) },
    { name: 'cost', failure: describeCost(expect.cost_usd, outcome.cost_usd) },
  ];
}

function describeRequests({ differences, countLeft }: CaseAnswers): string | null {
  const [first, ...more] = differences;
  const left = countLeft();
  if (first === undefined) return left === 0 ? null : `${left} recorded model calls were not made`;
  const rest = more.length === 0 ? '' : `\n${more.length} later requests differ too`;
  const at = first.path === '' ? '' : ` differs at ${first.path}`;
  return `${first.where}${at}\n${first.diff}${rest}`;
}

function describeChange(before: unknown, now: unknown): string | null {
  const [old, fresh] = [before, now].map((value) => JSON.stringify(value, null, 1)) as [string, string];
  return old === fresh ? null : diffTexts(old, fresh);
}

function describeCost(before: string, now: string): string | null {
  if (toPusd(before) === toPusd(now)) return null;
  return `$${fromPusd(toPusd(now))} in place of $${fromPusd(toPusd(before))}`;
}

function checkAsserts(asserts: NonNullable<CaseFile['asserts']>, outcome: Outcome): readonly Check[] {
  const { max_cost_usd, tools, files, final_text_matches } = asserts;
  const checks: Check[] = [];
  const addCheck = (name: string, failure: string | null) => checks.push({ name, failure });
  if (max_cost_usd !== undefined) {
    const isAbove = toPusd(outcome.cost_usd) > toPusd(max_cost_usd);
    addCheck('max_cost_usd', isAbove ? `the run cost $${outcome.cost_usd}, more than $${max_cost_usd}` : null);
  }
  if (tools !== undefined) addCheck('tools', describeChange(sortKeys(tools), sortKeys(outcome.tools)));
  if (files !== undefined) addCheck('files', describeChange([...files].sort(), outcome.files));
  if (final_text_matches !== undefined) {
    addCheck('final_text_matches', matchText(final_text_matches, outcome.final_text ?? ''));
  }
  return checks;
}

function matchText(source: string, text: string): string | null {
  try {
    return compilePattern(source, 's').test(text) ? null : `${JSON.stringify(text)} does not match`;
  } catch (error) {
    throw new CaseError(`asserts.final_text_matches: ${readErrorMessage(error)}`);
  }
}

function sortKeys<T>(value: Readonly<Record<string, T>>): Readonly<Record<string, T>> {
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** A line a check, the failures with their text below. */
export function formatChecks(checks: readonly Check[]): string {
  return checks
    .map(({ name, failure }) => {
      if (failure === null) return `ok    ${name}\n`;
      return `FAIL  ${name}\n${failure.replace(/^/gm, '      ')}\n`;
    })
    .join('');
}
