// `metis routing`: a policy file checked, and the seven slots for a message as a table (17 §2).
import fs from 'node:fs';
import path from 'node:path';
import { createMetisClient, type RouteExplanation } from '#client/client.ts';
import type { ServerAddress } from '#client/request.ts';
import {
  askServer,
  createTerminalStyle,
  getTableWidth,
  groupDigits,
  layOutTable,
  pad,
  type ServerFlags,
  type Terminal,
  toJsonLine,
  toPrintable,
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
    const check = await createMetisClient(server).checkRoutingPolicy({ policy_yaml: text });
    const { valid, errors, warnings } = check;
    if (flags.json) stdout.write(toJsonLine(check));
    else {
      const style = createTerminalStyle(terminal);
      for (const line of errors) stdout.write(`${style.red('error')}    ${toPrintable(line)}\n`);
      for (const line of warnings) stdout.write(`${style.yellow('warning')}  ${toPrintable(line)}\n`);
      if (valid) stdout.write(`${style.green('ok')}       ${file}\n`);
    }
    return valid ? 0 : 1;
  });
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
    return answer.refused === null ? 0 : 1;
  });
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
    rows.push([
      `${entry === winner ? '▸' : ' '} ${i + 1}`,
      entry.policy,
      entry.verdict === 'chose' && entry !== winner ? 'could' : entry.verdict,
      entry.candidate_model ?? '',
      entry.validation_failure === null
        ? entry.reason
        : `${entry.reason}: ${describeFailure(entry.validation_failure, entry.candidate_model)}`,
    ]);
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
    return beside ? [row] : [row, pad(`     ${toPrintable(rows[i]!.at(-1)!)}`, width).trimEnd()];
  });
  return [toPrintable(describeVerdict(answer)), '', header!, rule!, ...painted];
}

/** A model of the registry is not configured for one reason alone. */
function describeFailure(code: string, model: string | null): string {
  return code === 'not_configured' ? `no key for ${model?.split(':')[0]}` : code;
}

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file',
  ENOTDIR: 'there is no such file',
  EISDIR: 'it is a folder',
  EACCES: 'it may not be read',
};
function explainFileError(error: unknown): string {
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  return REASONS[code] ?? (code || String(error));
}

function describeVerdict({
  chosen_model,
  refused,
  chain,
  winner_index,
  estimated_input_tokens,
}: RouteExplanation): string {
  const about = `about ${groupDigits(estimated_input_tokens)} input tokens`;
  if (refused === null) return `${chosen_model}, ${about}`;
  if (refused === 'routing_failed') return `refused: no model can serve this message, ${about}`;
  return `refused: the chosen model cannot serve this message, ${chain[winner_index]?.candidate_model} could; ${about}`;
}
