// A tab of the one browser on a server's dashboard, with everything it complained of and asked for.
import fs from 'node:fs';
import { createRequire } from 'node:module';
import { type BrowserContextOptions, chromium, type Page } from 'playwright-core';
import { expect, inject, onTestFinished } from 'vitest';

/** Whether there is a browser to test with. */
export const browserEndpoint = inject('browserEndpoint');

const AXE = createRequire(import.meta.url).resolve('axe-core/axe.min.js');
/** The server goes away and refuses on purpose in some tests; the browser reports every such answer by itself. */
const NETWORK = /Failed to load resource|WebSocket connection to/;

/** Every size and colour that a view is looked at in; axe, which is slow, where it may find another thing than elsewhere. */
const LOOKS = [
  { width: 400, colorScheme: 'light', axe: true },
  { width: 1280, colorScheme: 'dark', axe: true },
  { width: 2560, colorScheme: 'light', axe: false },
] as const;
/** Tabs live as long as their test; the connection to the browser as long as the file. */
let connected: ReturnType<typeof chromium.connect> | undefined;
let axe: Promise<string> | undefined;

export interface Tab {
  readonly page: Page;
  /** Console errors and exceptions of the page, and breaches of its content security policy. */
  readonly errors: string[];
  /** Origins of every request. */
  readonly origins: ReadonlySet<string>;
}

/** Opens `url` in a context of its own; closed with the test. */
export async function openTab(url: string, options: BrowserContextOptions = {}): Promise<Tab> {
  connected ??= chromium.connect(browserEndpoint ?? '');
  const browser = await connected;
  const context = await browser.newContext({ locale: 'en-GB', viewport: { width: 1280, height: 820 }, ...options });
  onTestFinished(() => context.close());
  const page = await context.newPage();
  page.setDefaultTimeout(45_000);
  const errors: string[] = [];
  const origins = new Set<string>();
  page.on('pageerror', (error) => errors.push(String(error)));
  page.on('console', (message) => {
    if (message.type() === 'error' && !NETWORK.test(message.text())) errors.push(message.text());
  });
  page.on('request', (request) => origins.add(new URL(request.url()).origin));
  await page.goto(url);
  return { page, errors, origins };
}

/**
 * Fails with the rules that the page breaks, as axe finds them. The policy lets no foreign script in: axe goes past it.
 * @param within selector of the parts that are looked at, which is quicker than the whole page
 */
export async function expectAccessible(page: Page, within = 'html'): Promise<void> {
  axe ??= fs.promises.readFile(AXE, 'utf8');
  // Half a megabyte: it stays until the page is loaded anew.
  if (!(await page.evaluate(() => 'axe' in globalThis))) await page.evaluate(await axe);
  const broken = await page.evaluate(async (selector) => {
    const { axe } = globalThis as unknown as {
      axe: {
        run(context: string, options: object): Promise<{ violations: { id: string; nodes: { html: string }[] }[] }>;
      };
    };
    const { violations } = await axe.run(selector, { resultTypes: ['violations'], preload: false });
    return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 200)).join(' | ')}`);
  }, within);
  expect(broken).toEqual([]);
}

/** Looks at what is shown at every size and colour: nothing is cut off, and axe finds nothing. `at` names it. */
export async function expectWhole(page: Page, at = ''): Promise<void> {
  for (const { width, colorScheme, axe } of LOOKS) {
    await page.setViewportSize({ width, height: 900 });
    await page.emulateMedia({ colorScheme });
    expect(await cutOff(page), `${at} ${width}`).toEqual([]);
    if (axe) await expectAccessible(page);
  }
}

/** What is cut off at the right edge of the page, by selector of the offender. */
async function cutOff(page: Page): Promise<string[]> {
  return page.evaluate(() => {
    const width = document.documentElement.clientWidth;
    return [...document.querySelectorAll<HTMLElement>('main *, header *')]
      .filter((element) => {
        const box = element.getBoundingClientRect();
        return box.width > 0 && (box.right > width + 1 || box.left < -1) && !element.closest('[data-scrolls]');
      })
      .map((element) => `${element.tagName}.${element.className}`);
  });
}
