// Refuses callers whose role may not do what they ask (23 §1).
import type { FastifyRequest } from 'fastify';
import { AppError } from '#protocol/errors.ts';
import type { Person, Role } from '#protocol/people/person.ts';
import { hasRole, OPERATION_ROLES, type OperationId, type OperationRole } from '#protocol/people/rights.ts';

export function getOperationRole({ routeOptions }: FastifyRequest): OperationRole | null {
  const { operationId } = (routeOptions.schema ?? {}) as { readonly operationId?: OperationId };
  if (operationId === undefined) return null;
  return OPERATION_ROLES[operationId];
}

/** Throws `forbidden` where the role may not do it in any session. */
export function requireRole({ role }: Person, needed: OperationRole): void {
  if (!hasRole(role, needed)) throw forbidden(needed, role);
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
