// Weeks of spending for the reports of the dashboard: trees of planners and workers, with every digit of a cost in use.

import { type Clock, systemClock } from '#protocol/clock.ts';
import type { DelegationRecord } from '#protocol/delegate.ts';
import { NO_CHANGES } from '#protocol/file-change.ts';
import { fromPusd } from '#protocol/money.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { sha256Hex } from '#protocol/text/canonical-json.ts';
import { callCompleted } from '../support/drafts.ts';
import { delegationRecord, outcome, sessionRecord, turnRecord, userMessage, workerRecord } from '../support/records.ts';
import type { BrowserServer } from './server.ts';

const DAY_MS = 86_400_000;
const TITLES = ['Refactor the login providers', 'Find the slow query', 'Write the release notes', 'Port the parser'];

/** A clock that can be put back by whole days, and goes on by a millisecond at least where it is told to. */
export function shiftedClock(): Clock & { back(days: number): void; tick(): void } {
  let shift = 0;
  return {
    ...systemClock,
    now: () => systemClock.now() - shift,
    back: (days) => {
      shift = days * DAY_MS;
    },
    tick: () => {
      shift -= 1;
    },
  };
}

/**
 * `trees` planners with three workers each over the last `days`, oldest first; the last is of today.
 * @returns the planners
 */
export async function seedLedger(
  { engine, client }: BrowserServer,
  clock: ReturnType<typeof shiftedClock>,
  { trees, days, title }: { readonly trees: number; readonly days: number; readonly title?: string },
): Promise<readonly SessionRecord[]> {
  const { active_version: pricing_version } = await client.getPricing();
  const planners: SessionRecord[] = [];
  for (let n = 0; n < trees; n++) {
    clock.back(trees === 1 ? 0 : Math.round(((trees - 1 - n) * (days - 1)) / (trees - 1)));
    const source = { ids: engine.ids, time: { now: clock.now() } };
    const workspace_path = n % 3 === 0 ? '/srv/shop' : '/srv/billing';
    const workspace_hash = sha256Hex(workspace_path);
    const planner = sessionRecord(source, { workspace_path, workspace_hash });
    const turn = turnRecord(source, planner);
    const workers = [0, 1, 2].map((w) => {
      const call = engine.ids.toolUse();
      const worker_name = w === 2 ? 'reviewer' : null;
      const worker_digest = worker_name && 'd'.repeat(64);
      const worker_origin = worker_name && ('project' as const);
      const named = { worker_name, worker_digest };
      const record = workerRecord(source, planner, call, {
        ...named,
        worker_origin,
        workspace_path,
        workspace_hash,
        delegated_by_model: 'scripted:deep',
      });
      const delegation = delegationRecord(source, turn, call, {
        ...named,
        worker_session_id: record.id,
        tier: 'fast',
        entry: w === 2 ? 'worker_tool' : 'delegate',
      });
      return { record, delegation };
    });
    await engine.journal.commit({
      writes: [
        { kind: 'session.insert', session: planner },
        { kind: 'turn.insert', turn },
        {
          kind: 'message.insert',
          message: userMessage(source, turn, `${title ?? TITLES[n % TITLES.length]} (${n + 1})`),
        },
        ...workers.flatMap(({ record, delegation }) => [
          { kind: 'session.insert' as const, session: record },
          { kind: 'delegation.insert' as const, delegation },
        ]),
      ],
      emit: [],
    });
    const spent = (pusd: number) => ({
      cost_usd: fromPusd(BigInt(pusd) * 1000n + BigInt(n * 37 + 1)),
      pricing_version,
    });
    const calls = [0, 1].map((i) =>
      callCompleted(source, planner, turn, {
        ...spent(91_234_561 + n * 7_013_017 * (i + 1)),
        model: 'scripted:deep',
        input_tokens: 1200 + n,
        cached_input_tokens: 20_000 * i,
        output_tokens: 900,
      }),
    );
    const theirs = workers.flatMap(({ record }, w) =>
      [0, 1].map((i) =>
        callCompleted(source, record, null, {
          ...spent(5_123_457 + n * 911_003 * (w + 1) + i * 7001),
          model: w === 1 ? 'scripted:balanced' : 'scripted:fast',
          input_tokens: 4000,
          cached_input_tokens: 3000 * i,
          output_tokens: 500,
        }),
      ),
    );
    const end = { kind: 'turn.end', turn_id: turn.id, session_id: planner.id, outcome: outcome(source) } as const;
    await engine.journal.commit({ writes: [], emit: [calls[0]!, ...theirs.filter((_, i) => i % 2 === 0)] });
    clock.tick();
    await engine.journal.commit({
      // A turn completes when its workers have.
      writes: [
        ...workers.map(({ delegation }) => endDelegation(delegation, source.time.now)),
        { ...end, unread_inputs: 0 },
      ],
      emit: [calls[1]!, ...theirs.filter((_, i) => i % 2 === 1)],
    });
    planners.push(planner);
  }
  clock.back(0);
  return planners;
}

const endDelegation = ({ tool_use_id }: DelegationRecord, ended_at: number) =>
  ({
    kind: 'delegation.end',
    tool_use_id,
    status: 'completed',
    failure_mode: null,
    error_message: null,
    output: 'done',
    changes: NO_CHANGES,
    active_seconds: 1,
    ended_at,
  }) as const;
