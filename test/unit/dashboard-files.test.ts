// The files of the dashboard: listed at the start, read when one is asked for.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { listDashboard } from '#server/dashboard-files.ts';

it('a file is read when it is first asked for, and once', () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'metis-dashboard-'));
  onTestFinished(() => fs.rmSync(folder, { recursive: true }));
  expect(listDashboard(folder)).toEqual([]);
  fs.mkdirSync(path.join(folder, 'dist/dashboard/assets'), { recursive: true });
  const page = path.join(folder, 'dist/dashboard/index.html');
  fs.writeFileSync(page, 'before it was asked for');
  const [file] = listDashboard(folder);
  expect(file).toMatchObject({ path: '/', mediaType: 'text/html; charset=utf-8' });
  fs.writeFileSync(page, 'the page');
  const { body, etag } = file!.read();
  expect([body.toString(), etag]).toEqual(['the page', expect.stringMatching(/^"[0-9a-f]{32}"$/)]);
  fs.rmSync(page);
  expect(file!.read()).toEqual({ body, etag });
});
