// The filter of a report that leaves nothing out.
import type { CallFilter } from '#protocol/analytics.ts';

export const NO_FILTER: CallFilter = {
  session: null,
  parent_session: null,
  model: null,
  provider: null,
  workspace_hash: null,
  delegation_tier: null,
  worker_name: null,
  door: null,
  caller: null,
  owner: null,
  include_workers: null,
};
