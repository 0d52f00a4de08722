// Writes the committed contract documents from the built code: openapi/openapi.json and openapi/events.schema.json.
import fs from 'node:fs';
import { eventsDocument, openApiDocument } from '../dist/http/openapi.js';

const { version } = JSON.parse(fs.readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
const folder = new URL('../openapi/', import.meta.url);
fs.mkdirSync(folder, { recursive: true });
fs.writeFileSync(new URL('openapi.json', folder), await openApiDocument(version));
fs.writeFileSync(new URL('events.schema.json', folder), eventsDocument());
