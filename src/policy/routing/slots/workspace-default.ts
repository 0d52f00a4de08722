// Slot 6: `default` of the workspace's policy file (03 §6.1).
import { propose, type Slot, withoutCandidate } from '../candidate.ts';

const POLICY = 'workspace_default';

export const workspaceDefault: Slot = (ctx, env) => {
  const model = env.policies.workspace_default;
  if (model === null) return withoutCandidate(POLICY, 'not_applicable', { reason: 'no workspace default configured' });
  return propose(POLICY, { candidate_model: model, reason: 'workspace default' }, ctx, env);
};
