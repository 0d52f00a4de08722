// Writes the committed documents that the code determines: openapi/, the table of keys in docs/configuration.md, the picture of rooms, the promise table.
import fs from 'node:fs';
import { eventsDocument, openApiDocument } from '#http/openapi.ts';
import { withKeyTable } from '#server/config-table.ts';

const { version } = JSON.parse(fs.readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
const folder = new URL('../openapi/', import.meta.url);
fs.mkdirSync(folder, { recursive: true });
fs.writeFileSync(new URL('openapi.json', folder), await openApiDocument(version));
fs.writeFileSync(new URL('events.schema.json', folder), eventsDocument());

const page = new URL('../docs/configuration.md', import.meta.url);
fs.writeFileSync(page, withKeyTable(fs.readFileSync(page, 'utf8')));

await import('./gen-architecture.mjs');
await import('./gen-worktrees.mjs');
await import('./gen-contract.mjs');
