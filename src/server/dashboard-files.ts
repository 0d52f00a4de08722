// The files of the dashboard, as the package has them: the page, its assets and the documents that it shows.
import fs from 'node:fs';
import path from 'node:path';
import type { DashboardFile } from '#http/http-app.ts';
import { sha256Hex } from '#protocol/text/canonical-json.ts';

const MEDIA_TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.md': 'text/markdown; charset=utf-8',
};

/** None where the package was not built: then the server has its interface and no page. */
export function listDashboard(packageDir: string): readonly DashboardFile[] {
  const folder = path.join(packageDir, 'dist', 'dashboard');
  const page = path.join(folder, 'index.html');
  if (!fs.existsSync(page)) return [];
  const assets = path.join(folder, 'assets');
  const documents = path.join(packageDir, 'docs');
  return [
    createDashboardFile('/', page),
    ...fs.readdirSync(assets).map((name) => createDashboardFile(`/assets/${name}`, path.join(assets, name))),
    ...listDocuments(documents).map((name) =>
      createDashboardFile(`/assets/documents/${name}`, path.join(documents, name)),
    ),
  ];
}

/** The documents of the package, which the page shows. */
function listDocuments(folder: string): readonly string[] {
  if (!fs.existsSync(folder)) return [];
  return fs.readdirSync(folder).filter((name) => name.endsWith('.md'));
}

/** Read when it is first asked for: all of them are 0.8 MB, and a server may never show them. */
function createDashboardFile(url: string, file: string): DashboardFile {
  const mediaType = MEDIA_TYPES[path.extname(file)] ?? 'application/octet-stream';
  let content: ReturnType<DashboardFile['read']> | null = null;
  return {
    path: url,
    mediaType,
    read() {
      content ??= readContent(file);
      return content;
    },
  };
}

function readContent(file: string): ReturnType<DashboardFile['read']> {
  const body = fs.readFileSync(file);
  return { body, etag: `"${sha256Hex(body).slice(0, 32)}"` };
}
