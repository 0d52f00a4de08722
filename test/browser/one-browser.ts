// One Chromium for all browser tests: Debian's, in a new empty profile. Without one these tests are skipped by name.
import fs from 'node:fs';
import { chromium } from 'playwright-core';
import type { TestProject } from 'vitest/node';

/** The first one has no windows of its own: the same pages take half of the processor time. */
const PLACES = [
  '/usr/bin/chromium-headless-shell',
  '/usr/bin/chromium',
  '/usr/bin/chromium-browser',
  '/usr/bin/google-chrome',
];
const FLAGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

declare module 'vitest' {
  interface ProvidedContext {
    /** Where the browser is spoken to; null where none is installed. */
    readonly browserEndpoint: string | null;
  }
}

export default async function setup(project: TestProject): Promise<(() => Promise<void>) | undefined> {
  const executablePath = PLACES.find((place) => fs.existsSync(place));
  if (executablePath === undefined) {
    project.provide('browserEndpoint', null);
    return undefined;
  }
  const server = await chromium.launchServer({ executablePath, args: FLAGS });
  project.provide('browserEndpoint', server.wsEndpoint());
  return () => server.close();
}
