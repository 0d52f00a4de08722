// `metis routing`: a policy file checked, a default written, and the seven slots for a message as a table (17 §2).
import fs from 'node:fs';
import path from 'node:path';
import {
  createMetisClient,
  type MetisClient,
  type RouteExplanation,
  type RoutingDefault,
  type WhatIfReport,
} from '#client/client.ts';
import type { ServerAddress } from '#client/request.ts';
import { nameReference } from '#protocol/text/model-reference.ts';
import { toJsonLine, toPrintable, toPrintableText } from './printable-text.ts';
import { parseSinceTime } from './since-time.ts';
import {
  askServer,
  createTerminalStyle,
  explainFileError,
  formatDollars,
  getTableWidth,
  groupDigits,
  layOutTable,
  pad,
  type ServerFlags,
  type Terminal,
} from './terminal.ts';

/** Exit code: 0 when the file is valid, 1 when it is not or the server did not answer. */
export async function checkRouting(
  terminal: Terminal,
  server: ServerAddress,
  file: string,
  flags: Pick<ServerFlags, 'json'>,
): Promise<number> {
  const { stdout, stderr } = terminal;
  let text: string;
  try {
    text = fs.readFileSync(path.resolve(terminal.cwd, file), 'utf8');
  } catch (error) {
    stderr.write(`metis: ${file} cannot be read: ${explainFileError(error)}\n`);
    return 1;
  }
  return askServer(terminal, server, async () => {
    const client = createMetisClient(server);
    const [check, newer] = await Promise.all([
      client.checkRoutingPolicy({ policy_yaml: text }),
      listNewerModels(client),
    ]);
    const { valid, errors, warnings } = check;
    if (flags.json) stdout.write(toJsonLine({ ...check, newer }));
    else {
      const style = createTerminalStyle(terminal);
      for (const line of errors) stdout.write(`${style.red('error')}    ${toPrintable(line)}\n`);
      for (const line of warnings) stdout.write(`${style.yellow('warning')}  ${toPrintable(line)}\n`);
      if (valid) stdout.write(`${style.green('ok')}       ${file}\n`);
      for (const line of newer.map(describeNewer)) stdout.write(`newer    ${toPrintable(line)}\n`);
    }
    if (valid) return 0;
    return 1;
  });
}

const NEWER_DAYS = '30d';

/** What the work on models that have a successor would have cost on that one (22 §5). */
async function listNewerModels(client: MetisClient): Promise<WhatIfReport['changed']> {
  const { models } = await client.listModels();
  const priced = new Set(models.filter(({ pricing }) => pricing !== null).map(({ id }) => id));
  const pairs = models.flatMap(({ id, superseded_by: newer }) =>
    newer !== null && priced.has(newer) ? [[id, newer] as const] : [],
  );
  if (pairs.length === 0) return [];
  const from = parseSinceTime(NEWER_DAYS)!;
  return (await client.askWhatIf({ from, models: Object.fromEntries(pairs) })).changed;
}

function describeNewer({ from_model, to_model, actual_usd, low_usd, high_usd }: WhatIfReport['changed'][number]) {
  const range = `${formatDollars(low_usd)} to ${formatDollars(high_usd)}`;
  return `${from_model} cost ${formatDollars(actual_usd)} in 30 days; its successor ${to_model} would have cost ${range}`;
}

/** Exit code: 0 when a model would serve the message, 1 when the turn would be refused or the server did not answer. */
export async function explainRoute(
  terminal: Terminal,
  server: ServerAddress,
  text: string,
  flags: Pick<ServerFlags, 'json'> & { readonly workspace?: string; readonly model?: string },
): Promise<number> {
  return askServer(terminal, server, async () => {
    const answer = await createMetisClient(server).explainRoute({
      text,
      workspace_path: path.resolve(terminal.cwd, flags.workspace ?? '.'),
      model: flags.model,
    });
    terminal.stdout.write(flags.json ? toJsonLine(answer) : `${formatExplanation(terminal, answer).join('\n')}\n`);
    const suggested = flags.json ? null : findSuggestion(answer);
    if (suggested !== null) {
      const place = flags.workspace === undefined ? '' : ` --workspace ${quoteWord(flags.workspace)}`;
      terminal.stdout.write(`\nuse it for this workspace: metis routing use ${toPrintable(suggested)}${place}\n`);
    }
    if (answer.refused === null) return 0;
    return 1;
  });
}

/** The model that was learned and only shown; null = none, or the message gets it anyway. */
function findSuggestion({ chain, chosen_model, chosen_effort }: RouteExplanation): string | null {
  const shown = chain.find(({ policy, verdict }) => policy === 'pattern' && verdict === 'deferred');
  if (shown === undefined || shown.candidate_model === null) return null;
  const suggested = nameReference(shown.candidate_model, shown.candidate_effort);
  return suggested === nameReference(chosen_model, chosen_effort) ? null : suggested;
}

/** As a shell takes it for one word. */
function quoteWord(text: string): string {
  if (/^[\w./~@%+=:,-]+$/.test(text)) return text;
  return `'${toPrintable(text).replaceAll("'", "'\\''")}'`;
}

/** Writes the default model of a workspace into its routing file. Exit code: 1 when it could not be written. */
export async function setDefaultModel(
  terminal: Terminal,
  server: ServerAddress,
  model: string,
  flags: Pick<ServerFlags, 'json'> & { readonly workspace?: string; readonly dryRun?: boolean },
): Promise<number> {
  const { stdout, stderr } = terminal;
  return askServer(terminal, server, async () => {
    const client = createMetisClient(server);
    const question = { workspace_path: path.resolve(terminal.cwd, flags.workspace ?? '.'), model };
    const planned = await client.setDefaultModel({ ...question, dry_run: true });
    const { previous_sha256 } = planned;
    const answer = flags.dryRun ? planned : await client.setDefaultModel({ ...question, previous_sha256 });
    for (const warning of answer.warnings) stderr.write(`metis: warning: ${toPrintable(warning)}\n`);
    if (flags.json) stdout.write(toJsonLine(answer));
    else if (flags.dryRun) stdout.write(toPrintableText(answer.text));
    else stdout.write(`${toPrintable(describeDefault(answer))}\n`);
    return 0;
  });
}

function describeDefault({ path: file, model, previous_model, written }: RoutingDefault): string {
  // A file that names the model by an alias is written anew.
  if (!written || previous_model === model) return `${file}: ${model} is the default already`;
  if (previous_model === null) return `${file}: the default is ${model}`;
  return `${file}: the default is ${model}, it was ${previous_model}`;
}

function formatExplanation(terminal: Terminal, answer: RouteExplanation): string[] {
  const style = createTerminalStyle(terminal);
  // The slot of a refused message could have served it and does not.
  const winner = answer.refused === null ? answer.chain[answer.winner_index] : undefined;
  const rows: string[][] = [];
  let winningRow = -1;
  for (const [i, entry] of answer.chain.entries()) {
    // A skipped rule has its row below its slot; the last one of a rejected slot is the slot's own candidate.
    const passedOver = (entry.tried_rules ?? []).filter((tried) => tried.rule_name !== entry.rule_name);
    if (entry === winner) winningRow = rows.length;
    rows.push(composeSlotCells(entry, i + 1, winner));
    for (const { rule_name, candidate_model, validation_failure } of passedOver)
      rows.push([
        '',
        '',
        'rejected',
        candidate_model,
        `matched rule '${rule_name}': ${describeFailure(validation_failure, candidate_model)}`,
      ]);
  }
  const columns = [' #', 'slot', 'verdict', 'model', 'reason'].map((title) => ({ title }));
  const width = getTableWidth(terminal);
  const whole = layOutTable(columns, rows, Number.POSITIVE_INFINITY);
  // The reasons say the most: where they do not fit beside the rest they go below it.
  const beside = whole.every((line) => line.length <= width);
  const [header, rule, ...body] = beside ? whole : layOutTable(columns.slice(0, -1), rows, width);
  const painted = body.flatMap((line, i) => {
    const row = i === winningRow ? style.bold(line) : line;
    if (beside) return [row];
    return [row, pad(`     ${toPrintable(rows[i]!.at(-1)!)}`, width).trimEnd()];
  });
  return [toPrintable(describeVerdict(answer)), '', header!, rule!, ...painted];
}

type Slot = RouteExplanation['chain'][number];

/** A slot that could have served the message beside the winner did not choose. */
function composeSlotCells(slot: Slot, number: number, winner: Slot | undefined): string[] {
  const { policy, verdict, candidate_model, validation_failure } = slot;
  const cells = [
    `  ${number}`,
    policy,
    verdict as string,
    nameReference(candidate_model ?? '', slot.candidate_effort),
    slot.reason,
  ];
  if (slot === winner) cells[0] = `▸ ${number}`;
  else if (verdict === 'chose') cells[2] = 'could';
  if (validation_failure !== null) cells[4] = `${slot.reason}: ${describeFailure(validation_failure, candidate_model)}`;
  return cells;
}

/** A model of the registry is not configured for one reason alone. */
function describeFailure(code: string, model: string | null): string {
  if (code === 'not_configured') return `no key for ${model?.split(':')[0]}`;
  return code;
}

function describeVerdict({
  chosen_model,
  chosen_effort,
  refused,
  chain,
  winner_index,
  estimated_input_tokens,
}: RouteExplanation): string {
  const about = `about ${groupDigits(estimated_input_tokens)} input tokens`;
  if (refused === null) return `${nameReference(chosen_model, chosen_effort)}, ${about}`;
  if (refused === 'routing_failed') return `refused: no model can serve this message, ${about}`;
  return `refused: the chosen model cannot serve this message, ${chain[winner_index]?.candidate_model} could; ${about}`;
}
