// drizzle-kit: drafts a migration from the schema; `npx drizzle-kit generate --name <noun>`, then finished by hand (01 §11).
import { defineConfig } from 'drizzle-kit';

export default defineConfig({
  dialect: 'sqlite',
  schema: './src/store/schema/*.ts',
  out: './migrations',
});
