// Trusts a file of a test's workspace as a person would, by its bytes (20 §11).
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { expect } from 'vitest';
import type { TestServer } from './http.ts';

export function sha256(file: string): string {
  return createHash('sha256').update(fs.readFileSync(file)).digest('hex');
}

export async function trustFile(server: TestServer, file: string): Promise<void> {
  const body = { workspace_path: server.workspace, path: file, sha256: sha256(path.join(server.workspace, file)) };
  expect((await server.call('POST', '/workspaces/trust', body)).body).toMatchObject({ trusted: true });
}
