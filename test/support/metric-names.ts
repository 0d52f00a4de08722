// The names of metrics as chapter 18 lists them, and as a server prints them.
import fs from 'node:fs';
import path from 'node:path';
import { ROOT } from '../app/metis.ts';

export interface ListedMetric {
  readonly name: string;
  readonly labels: readonly string[];
}

/** Of every server, those that a cluster adds, and those that NATS adds. */
export function listChapterMetrics(): Readonly<Record<'everywhere' | 'cluster' | 'nats', readonly ListedMetric[]>> {
  const chapter = fs.readFileSync(path.join(ROOT, 'docs/spec/18-ecosystem.md'), 'utf8');
  const section = chapter.slice(chapter.indexOf('\n## 4. Metrics'), chapter.indexOf('\n## Acceptance'));
  const [everywhere = '', cluster = '', nats = ''] = section.split(/\nWith `(?:database|nats)\.url` also/);
  const rows = (text: string) =>
    [...text.matchAll(/^\| (`metis_[^|]*)\|([^|]*)\|/gm)].flatMap(([, names, labels]) =>
      spans(names!).map((name) => ({ name, labels: spans(labels!) })),
    );
  return {
    everywhere: rows(everywhere),
    cluster: rows(cluster),
    nats: spans(nats).flatMap((name) => (name.startsWith('metis_') ? [{ name, labels: [] }] : [])),
  };
}

const spans = (text: string) => [...text.matchAll(/`([^`]+)`/g)].map(([, span]) => span!);

/** Of a text of `/metrics`: each name with its type and the labels of its samples. */
export function listPrintedMetrics(
  text: string,
): ReadonlyMap<string, { readonly type: string; readonly labels: string[] }> {
  const found = new Map<string, { readonly type: string; readonly labels: string[] }>();
  for (const [, name, type] of text.matchAll(/^# TYPE (\S+) (\S+)$/gm)) {
    const samples = new RegExp(`^${name}(?:_bucket|_sum|_count)?(?:\\{(.*)\\})? `, 'gm');
    const labels = [...text.matchAll(samples)].flatMap(([, all = '']) =>
      [...all.matchAll(/([a-z_]+)="/g)].map(([, label]) => label!),
    );
    found.set(name!, { type: type!, labels: [...new Set(labels)].filter((label) => label !== 'le').sort() });
  }
  return found;
}

/** Number of one sample; null where it is not printed. @param labels as they are printed, in their order */
export function readSample(text: string, name: string, labels = ''): number | null {
  const line = text.split('\n').find((each) => each.startsWith(`${name}${labels === '' ? '' : `{${labels}}`} `));
  return line === undefined ? null : Number(line.slice(line.lastIndexOf(' ') + 1));
}
