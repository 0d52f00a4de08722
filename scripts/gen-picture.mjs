// Draws the pictures of docs/dashboard.md: the demo, run by a server of its own, as a browser shows it. Needs Debian's Chromium.
import { spawn } from 'node:child_process';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const root = fileURLToPath(new URL('..', import.meta.url));
const demo = spawn(process.execPath, [path.join(root, 'dist/main.js'), 'demo', '--keep'], {
  stdio: ['ignore', 'pipe', 'inherit'],
});
try {
  const address = await said(demo, /In the dashboard: (\S+)/);
  const browser = await chromium.launch({
    executablePath: '/usr/bin/chromium',
    args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run'],
  });
  const page = await browser.newPage({ viewport: { width: 1200, height: 860 }, deviceScaleFactor: 2, locale: 'en-GB' });
  await page.goto(address);
  await page.locator('.turn-end').waitFor();
  const card = page.locator('.delegation').first();
  await card.locator('.why summary').click();
  await card.locator('.chain').waitFor();
  // From the delegations on, which is what the page is about.
  await card.evaluate((element) => element.closest('.message')?.scrollIntoView({ block: 'start' }));
  await draw(page, 'dashboard');

  // What the job cost, and the same page on a phone in the dark.
  await page.goto(address.replace(/#.*/, '#/cost?range=all'));
  await page.locator('.cost-table button[aria-expanded]').first().click();
  await page.locator('.cost-table tr.nested').nth(3).waitFor();
  await draw(page, 'dashboard-cost');
  const dark = { deviceScaleFactor: 2, locale: 'en-GB', colorScheme: 'dark' };
  const phone = await browser.newPage({ viewport: { width: 390, height: 780 }, ...dark });
  await phone.goto(address);
  await phone.locator('.delegation').first().waitFor();
  await phone
    .locator('.delegation')
    .first()
    .evaluate((element) => element.scrollIntoView({ block: 'start' }));
  await draw(phone, 'dashboard-phone');
  await browser.close();
} finally {
  demo.kill('SIGINT');
}

/** Once fonts and charts have settled. */
async function draw(page, name) {
  await page.waitForTimeout(800);
  await page.screenshot({ path: path.join(root, `docs/${name}.png`), animations: 'disabled' });
}

/** The first match in what a process writes. */
async function said(child, pattern) {
  let text = '';
  for await (const part of child.stdout.setEncoding('utf8')) {
    text += part;
    const match = pattern.exec(text);
    if (match) return match[1];
  }
  throw new Error(`the demo ended before it said ${pattern}:\n${text}`);
}
