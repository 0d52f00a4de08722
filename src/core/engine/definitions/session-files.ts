// The files a session's tools may reach: the workspace, or the sandboxes of its definition (13 §4).

import type { WorkspaceFiles } from '#core/ports/workspace.ts';
import type { SessionRecord } from '#protocol/session.ts';
import type { Engine } from '../state/engine.ts';

export function sessionFiles(
  engine: Engine,
  session: Pick<SessionRecord, 'workspace_path' | 'worker_definition'>,
): WorkspaceFiles {
  const { workspace_path: root, worker_definition: named } = session;
  return named === null
    ? engine.workspaces.files(root)
    : engine.workspaces.sandboxes(root, Object.values(named.definition.sandboxes));
}
