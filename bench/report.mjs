// What a run prints and leaves behind: the table, the JSON file, and the comparison with the committed ratios.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { describe, judge } from './limits.mjs';
import { WIDE } from './rounds.mjs';
import { median, spread } from './stats.mjs';

const baselineFile = path.join(import.meta.dirname, 'baseline.json');
const resultFile = path.join(import.meta.dirname, 'results', 'latest.json');
/** A ratio this much worse than the committed one is marked. */
const TOLERANCE = 0.1;

/**
 * One row as it is reported.
 * @param measured `{row, unit, better: 'higher' | 'lower', metis: number[], relay: number[], limit}`, one number a round;
 *   the limit is of `limits.mjs`, and missing where the row has none
 */
export function summarise(measure, { row, unit, better, metis, relay, limit }) {
  const own = median(metis);
  const bare = median(relay);
  const figures = { metis: own, relay: bare, ratio: own === bare ? 1 : own / bare };
  return {
    key: `${measure}: ${row}`,
    measure,
    row,
    unit,
    better,
    ...figures,
    spread: widest([spread(metis), spread(relay)]),
    limit: limit === undefined ? null : judge(limit, figures),
    runs: { metis, relay },
  };
}

/** A side of one value is a constant, or was measured once. */
function widest(spreads) {
  const known = spreads.filter((one) => one !== null);
  return known.length === 0 ? null : Math.max(...known);
}

/** How many rows are within their limits, and how many are not. */
export function countLimits(rows) {
  const limited = rows.filter(({ limit }) => limit !== null);
  const met = limited.filter(({ limit }) => limit.met).length;
  return { met, missed: limited.length - met };
}

export function readBaseline() {
  return fs.existsSync(baselineFile) ? JSON.parse(fs.readFileSync(baselineFile, 'utf8')) : {};
}

/** Replaces the ratios that were measured and keeps the others. */
export function saveBaseline(rows) {
  const measured = rows.filter((r) => Number.isFinite(r.ratio));
  const ratios = {
    ...readBaseline(),
    ...Object.fromEntries(measured.map((r) => [r.key, Number(r.ratio.toPrecision(3))])),
  };
  fs.writeFileSync(baselineFile, `${JSON.stringify(ratios, null, 2)}\n`);
  return baselineFile;
}

export function saveResult(rows, about) {
  fs.mkdirSync(path.dirname(resultFile), { recursive: true });
  const machine = { cpus: os.availableParallelism(), node: process.version };
  fs.writeFileSync(resultFile, `${JSON.stringify({ ...about, ...machine, rows }, null, 2)}\n`);
  return resultFile;
}

/**
 * Aligned text. A spread above 10 % is marked `!`; the last columns compare with the committed ratios where there is one.
 */
export function table(rows, baseline) {
  const lines = [['', 'unit', 'metis', 'relay', 'ratio', 'spread', 'limit', '', 'was', '']];
  let measure = null;
  for (const r of rows) {
    if (r.measure !== measure) lines.push([r.measure]);
    measure = r.measure;
    const was = baseline[r.key];
    lines.push([
      `  ${r.row}`,
      r.unit,
      figure(r.metis),
      figure(r.relay),
      figure(r.ratio),
      r.spread === null ? '-' : `${Math.round(r.spread * 100)} %${r.spread > WIDE ? ' !' : '  '}`,
      r.limit === null ? '' : describe(r.limit, r.unit),
      r.limit === null ? '' : r.limit.met ? 'met' : 'missed',
      was === undefined ? '-' : figure(was),
      was === undefined ? '' : verdict(r, was),
    ]);
  }
  const widths = lines[0].map((_, column) => Math.max(...lines.map((line) => (line[column] ?? '').length)));
  const aligned = lines.map((line) =>
    line.map((cell, column) => (column === 0 ? cell.padEnd(widths[0]) : cell.padStart(widths[column]))).join('  '),
  );
  return aligned.map((line) => line.trimEnd()).join('\n');
}

function verdict({ better, ratio }, was) {
  const change = better === 'higher' ? was / ratio : ratio / was;
  return change > 1 + TOLERANCE ? `WORSE by ${Math.round((change - 1) * 100)} %` : '';
}

function figure(value) {
  if (value === 0) return '0';
  return Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3);
}
