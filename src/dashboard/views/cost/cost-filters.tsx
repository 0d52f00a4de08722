// Filters over the calls: what there is to choose from is what was spent on in the same time.
import type { CostReport, MetisClient } from '#client/client.ts';
import { useApi } from '#dashboard/data/api.ts';
import { usePolled } from '#dashboard/data/polled.ts';
import { baseName, modelName } from '#dashboard/format/number.ts';
import { DOOR_NAMES } from '#dashboard/parts/door.tsx';
import { Icon } from '#dashboard/parts/icon.tsx';
import { type Choice, Menu } from '#dashboard/parts/menu.tsx';
import { systemClock } from '#protocol/clock.ts';
import { type CostQuestion, FILTERS, type Filter, NO_FILTER, windowOf } from './cost-question.ts';
import { NO_KEY } from './group-rows.tsx';

const EVERY_MS = 60_000;
const MOST = 200;
const TITLES: Readonly<Record<Filter, string>> = {
  model: 'Model',
  tier: 'Tier',
  worker: 'Worker',
  workspace: 'Workspace',
  door: 'Door',
  caller: 'Caller',
};
/** Nothing that is filtered by is called so; the caller '' is the calls without a key. */
const ANY = '*';

export function CostFilters(props: {
  readonly question: CostQuestion;
  readonly workspaces: ReadonlyMap<string, string>;
  readonly onAsk: (question: CostQuestion) => void;
}) {
  const { question, onAsk } = props;
  const { client } = useApi();
  const key = `${question.range} ${question.from} ${question.to}`;
  const { data } = usePolled((signal) => askChoices(client, question, signal), key, EVERY_MS);
  const offered: Readonly<Record<Filter, readonly Choice[]>> = {
    model: (data?.models ?? []).map((value) => ({ value, label: modelName(value) })),
    tier: ['fast', 'balanced', 'deep'].map((value) => ({ value, label: value })),
    worker: (data?.workers ?? []).map((value) => ({ value, label: value })),
    workspace: (data?.workspaces ?? []).map((value) => workspaceChoice(value, props.workspaces)),
    door: (data?.doors ?? []).map((value) => ({ value, label: DOOR_NAMES[value] })),
    caller: (data?.callers ?? []).map((value) => ({ value, label: value === '' ? NO_KEY : value })),
  };
  return (
    <div class="filters">
      {FILTERS.map((filter) => {
        const value = question[filter];
        const known = offered[filter];
        if (value === null && known.length === 0) return null;
        const missing = value !== null && !known.some((choice) => choice.value === value);
        const choices = [
          { value: ANY, label: 'Any' },
          ...known,
          ...(missing ? [{ value, label: value === '' ? NO_KEY : value }] : []),
        ];
        return (
          <Menu
            key={filter}
            label={TITLES[filter]}
            choices={choices}
            value={value ?? ANY}
            onChoose={(chosen) => onAsk({ ...question, [filter]: chosen === ANY ? null : chosen })}
          />
        );
      })}
      {FILTERS.some((filter) => question[filter] !== null) && (
        <button type="button" class="button ghost" onClick={() => onAsk({ ...question, ...NO_FILTER })}>
          <Icon name="close" />
          Clear
        </button>
      )}
    </div>
  );
}

async function askChoices(client: MetisClient, question: CostQuestion, signal: AbortSignal) {
  const window = windowOf(question, systemClock.now());
  if (window === null) return null;
  const { bucket: _, ...asked } = window;
  const by = (group_by: string) =>
    client.getCost({ ...asked, group_by, limit: MOST } as { group_by: 'model' }, { signal });
  const [models, workers, workspaces, ways] = await Promise.all([
    by('model'),
    by('worker_name'),
    by('workspace'),
    by('door,caller'),
  ]);
  const keys = (report: CostReport<'model'>, name: 'model' | 'worker_name' | 'workspace_hash') =>
    [...new Set(report.data.map((row) => row[name]))].filter((key) => typeof key === 'string');
  return {
    models: keys(models, 'model'),
    workers: keys(workers, 'worker_name'),
    workspaces: keys(workspaces, 'workspace_hash'),
    // Where all came the one way there is nothing to choose.
    doors: severalOf(ways.data.flatMap(({ door }) => door ?? [])),
    callers: severalOf(ways.data.map(({ caller }) => caller ?? '')),
  };
}

function severalOf<T extends string>(values: readonly T[]): readonly T[] {
  const different = [...new Set(values)].sort();
  return different.length > 1 ? different : [];
}

function workspaceChoice(hash: string, paths: ReadonlyMap<string, string>): Choice {
  const path = paths.get(hash);
  return path === undefined
    ? { value: hash, label: hash.slice(0, 8) }
    : { value: hash, label: baseName(path), hint: hash.slice(0, 4) };
}
