// Slot 6: `default` of the workspace's policy file (03 §6.1).
import { propose, type Slot, withoutCandidate } from '../candidate.ts';

const POLICY = 'workspace_default';

export const workspaceDefault: Slot = (ctx, env) => {
  const { workspace_default: model, faults } = env.policies;
  if (model === null) {
    const reason = ['no workspace default configured', faults.workspace].filter((part) => part !== null).join('; ');
    return withoutCandidate(POLICY, 'not_applicable', { reason });
  }
  return propose(POLICY, { candidate_model: model, reason: 'workspace default' }, ctx, env);
};
