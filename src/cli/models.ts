// `metis models`: the models of a server, the names each is called by, and its prices (17 §2).
import { createMetisClient, type Model } from '#client/client.ts';
import type { ServerAddress } from '#client/request.ts';
import { toJsonLine } from './printable-text.ts';
import {
  askServer,
  type Column,
  createTerminalStyle,
  formatDollars,
  getTableWidth,
  layOutTable,
  type ServerFlags,
  type Terminal,
} from './terminal.ts';

const MODEL_COLUMNS: readonly Column[] = [
  { title: 'model', whole: true },
  { title: 'alias', least: 8, drop: 3 },
  { title: 'tier', whole: true, drop: 4 },
  { title: 'input/M', align: 'right', drop: 2 },
  { title: 'output/M', align: 'right', drop: 1 },
  { title: 'state', whole: true },
];

export interface ModelsFlags extends Pick<ServerFlags, 'json'> {
  /** Those without a key too. */
  readonly all?: boolean;
}

/** Exit code: 0, or 1 when the server did not answer. With `json`, a model a line. */
export async function listModels(terminal: Terminal, server: ServerAddress, flags: ModelsFlags): Promise<number> {
  const { stdout } = terminal;
  return askServer(terminal, server, async () => {
    const { models } = await createMetisClient(server).listModels();
    const usable = models.filter(({ configured }) => configured);
    const others = models.filter(({ configured }) => !configured);
    const shown = flags.all ? [...usable, ...others] : usable;
    if (flags.json) {
      for (const model of shown) stdout.write(toJsonLine(model));
      return 0;
    }
    const style = createTerminalStyle(terminal);
    const [header, rule, ...rows] = layOutTable(MODEL_COLUMNS, shown.map(composeModelCells), getTableWidth(terminal));
    stdout.write(`${[style.bold(header!), style.dim(rule!), ...rows].join('\n')}\n`);
    if (usable.some(({ simulated }) => simulated))
      stdout.write(`${style.dim('Simulated models answer from a script; their prices are examples.')}\n`);
    if (shown.length < models.length)
      stdout.write(`${style.dim(`${others.length} more have no key; --all shows them`)}\n`);
    return 0;
  });
}

function composeModelCells(model: Model): string[] {
  const { id, aliases, tier, pricing } = model;
  const prices = ['unpriced', 'unpriced'];
  if (pricing !== null)
    prices.splice(0, 2, formatDollars(pricing.input_per_mtok), formatDollars(pricing.output_per_mtok));
  return [id, aliases.join(', '), tier ?? '', ...prices, describeModelState(model)];
}

function describeModelState({ configured, simulated, availability }: Model): string {
  if (!configured) return 'no key';
  if (simulated) return 'simulated';
  if (availability === 'healthy') return 'ready';
  return 'unavailable';
}
