// The built dashboard, read once: a server keeps serving what it started with, also while another build runs.
import fs from 'node:fs';
import path from 'node:path';
import type { DashboardFile } from '#http/http-app.ts';
import { sha256Hex } from '#protocol/text/canonical-json.ts';

const MEDIA_TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/** None where the package was not built: then the server has its interface and no page. */
export function readDashboard(packageDir: string): readonly DashboardFile[] {
  const folder = path.join(packageDir, 'dist', 'dashboard');
  const page = path.join(folder, 'index.html');
  if (!fs.existsSync(page)) return [];
  const assets = path.join(folder, 'assets');
  return [
    readDashboardFile('/', page),
    ...fs.readdirSync(assets).map((name) => readDashboardFile(`/assets/${name}`, path.join(assets, name))),
  ];
}

function readDashboardFile(url: string, file: string): DashboardFile {
  const body = fs.readFileSync(file);
  const mediaType = MEDIA_TYPES[path.extname(file)] ?? 'application/octet-stream';
  return { path: url, mediaType, body, etag: `"${sha256Hex(body).slice(0, 32)}"` };
}
