// `<data>/server.json`: where the server of this data folder answers, for processes that start later (19 §5).
import fs from 'node:fs';
import path from 'node:path';
import { z } from 'zod';

const ServerFileSchema = z.object({
  url: z.url(),
  pid: z.int().positive(),
  /** It lives in a process that serves one client, and goes with it. */
  embedded: z.boolean(),
});
export type ServerFile = z.infer<typeof ServerFileSchema>;

const MAX_BYTES = 4096;

const getServerFilePath = (dataDir: string) => path.join(dataDir, 'server.json');

/** Null where there is none, or what is there is not one. */
export function readServerFile(dataDir: string): ServerFile | null {
  try {
    const file = getServerFilePath(dataDir);
    if (fs.statSync(file).size > MAX_BYTES) return null;
    return ServerFileSchema.parse(JSON.parse(fs.readFileSync(file, 'utf8')));
  } catch {
    return null;
  }
}

/** Says where this process answers; the returned function takes it back, unless another server has said so since. */
export function writeServerFile(dataDir: string, content: Omit<ServerFile, 'pid'>): () => void {
  const file = getServerFilePath(dataDir);
  const mine: ServerFile = { ...content, pid: process.pid };
  const draft = `${file}.${process.pid}`;
  fs.writeFileSync(draft, `${JSON.stringify(mine)}\n`, { mode: 0o600 });
  fs.renameSync(draft, file);
  return () => {
    if (readServerFile(dataDir)?.pid === process.pid) fs.rmSync(file, { force: true });
  };
}
