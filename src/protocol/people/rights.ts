// What a role may do: the one table of operations, complete by its type, and who sees, changes and shares a session (23 §1).
import type { Ownership, Person, Role } from './person.ts';

/** `open` needs no token; `owner` = a member in its own sessions and in those shared for writing, or an admin. */
export type OperationRole = 'open' | 'viewer' | 'member' | 'owner' | 'admin';

/** By the id of the operation. A route without a line here does not compile. */
export const OPERATION_ROLES = {
  getHealth: 'open',
  getReadiness: 'open',
  getDocs: 'open',
  getNode: 'open',
  getMetrics: 'viewer',
  getOpenApi: 'viewer',
  getEventSchema: 'viewer',
  listNodes: 'viewer',
  getSettings: 'admin',
  pruneEvents: 'admin',

  createSession: 'member',
  listSessions: 'viewer',
  getSession: 'viewer',
  updateSession: 'owner',
  endSession: 'owner',
  forkSession: 'owner',
  compareSessions: 'viewer',
  getCase: 'viewer',

  estimateTurn: 'owner',
  submitTurn: 'owner',
  listTurns: 'viewer',
  getTurn: 'viewer',
  cancelTurn: 'owner',
  concludeTurn: 'owner',
  resumeTurn: 'owner',
  scoreTurn: 'owner',

  submitDelegation: 'owner',
  applyChanges: 'owner',
  getChangesDiff: 'viewer',
  getChangedFiles: 'viewer',
  listWorktrees: 'viewer',
  pruneWorktrees: 'admin',

  listConfirmations: 'viewer',
  getConfirmation: 'viewer',
  answerConfirmation: 'owner',

  listMessages: 'viewer',
  listEvents: 'viewer',
  listCalls: 'viewer',
  listWorkers: 'viewer',
  streamSession: 'viewer',

  listModels: 'viewer',
  getPricing: 'viewer',
  getRoutingPolicy: 'viewer',
  checkRoutingPolicy: 'viewer',
  explainRoute: 'viewer',
  listPatterns: 'viewer',
  setDefaultModel: 'admin',

  listWorkerDefinitions: 'viewer',
  getWorkerDefinition: 'viewer',
  createWorkerDefinition: 'admin',
  replaceWorkerDefinition: 'admin',
  deleteWorkerDefinition: 'admin',
  listTools: 'viewer',
  listTrustedFiles: 'viewer',
  trustFile: 'admin',
  untrustFile: 'admin',

  getCost: 'viewer',
  getSavings: 'viewer',
  getRoutingStats: 'viewer',
  getReliability: 'viewer',
  getVerifiedResults: 'viewer',
  getLedgerDays: 'viewer',
  getQuality: 'viewer',
  askWhatIf: 'viewer',
  getForecastCheck: 'viewer',

  getOwnToken: 'viewer',
  listTokens: 'admin',
  createToken: 'admin',
  revokeToken: 'admin',
  listAudit: 'admin',
} as const satisfies Readonly<Record<string, OperationRole>>;

export type OperationId = keyof typeof OPERATION_ROLES;

const RANK: Readonly<Record<Role, number>> = { viewer: 0, member: 1, admin: 2 };
const LEAST: Readonly<Record<OperationRole, Role>> = {
  open: 'viewer',
  viewer: 'viewer',
  member: 'member',
  owner: 'member',
  admin: 'admin',
};

/** Whether the role may do it in some session. */
export function hasRole(role: Role, needed: OperationRole): boolean {
  return RANK[role] >= RANK[LEAST[needed]];
}

/** Whether the session exists for this person. */
export function canSee({ id, role }: Person, { owner, share }: Ownership): boolean {
  return role === 'admin' || share !== 'private' || (owner !== null && owner === id);
}

/** Whether the person may change the session and work in it. */
export function canWrite({ id, role }: Person, { owner, share }: Ownership): boolean {
  if (role !== 'member') return role === 'admin';
  return share === 'write' || (owner !== null && owner === id);
}

/**
 * Whether the person may answer approvals of a session that it may write in.
 * @param own whether members answer those of their own sessions (`approvals.own`)
 */
export function canApprove({ id, role }: Person, { owner }: Pick<Ownership, 'owner'>, own: boolean): boolean {
  return own || role === 'admin' || owner !== id;
}

/** Whether the person may set who else sees the session. Only an admin may give it to another owner. */
export function canShare({ id, role }: Person, { owner }: Pick<Ownership, 'owner'>): boolean {
  if (role !== 'member') return role === 'admin';
  return owner !== null && owner === id;
}

/**
 * Whether the person may call the operation.
 * @param session that it is for; null = none, or one that is not known
 */
export function canCall(person: Person, operation: OperationId, session: Ownership | null): boolean {
  const needed = OPERATION_ROLES[operation];
  if (needed === 'owner' && session !== null) return canWrite(person, session);
  return hasRole(person.role, needed);
}
