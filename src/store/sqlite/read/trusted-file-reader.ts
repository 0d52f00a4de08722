// Files of a workspace that a person has trusted (20 §11).

import type { TrustedFileReader } from '#core/ports/store.ts';
import type { TrustedFile } from '#protocol/trusted-file.ts';
import * as sql from '#store/read/trusted-files.ts';
import type { SqliteStoreHandle } from '../connection/open.ts';

export function createTrustedFileReader({ db }: SqliteStoreHandle): TrustedFileReader {
  const digest = db.prepare<[string, string], { readonly sha256: string }>(sql.DIGEST);
  const list = db.prepare<[string], TrustedFile>(sql.LIST);
  return {
    digest: async (workspace, path) => digest.get(workspace, path)?.sha256 ?? null,
    list: async (workspace) => list.all(workspace),
  };
}
