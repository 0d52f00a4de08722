// Which role each operation needs: the one table, complete by its type (23 §1).
import type { FastifyRequest } from 'fastify';
import { AppError } from '#protocol/errors.ts';
import type { Person, Role } from '#protocol/people/person.ts';

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

export function getOperationRole({ routeOptions }: FastifyRequest): OperationRole | null {
  const { operationId } = (routeOptions.schema ?? {}) as { readonly operationId?: OperationId };
  if (operationId === undefined) return null;
  return OPERATION_ROLES[operationId];
}

/** Throws `forbidden` where the role may not do it in any session. */
export function requireRole({ role }: Person, needed: OperationRole): void {
  const least = LEAST[needed];
  if (RANK[role] < RANK[least]) throw forbidden(needed, role);
}

const NAMES: Readonly<Record<OperationRole, string>> = {
  open: 'any caller',
  viewer: 'a viewer, a member or an admin',
  member: 'a member or an admin',
  owner: 'the owner of the session, a member with whom it is shared for writing, or an admin',
  admin: 'an admin',
};

/** @param role of the caller */
export function forbidden(needed: OperationRole, role: Role): AppError {
  return new AppError('forbidden', `only ${NAMES[needed]} may do this; the token of this request is a ${role}'s`, {
    required_role: needed,
    role,
  });
}
