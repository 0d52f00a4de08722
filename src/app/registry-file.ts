// Reads the model registry a server starts with.
import fs from 'node:fs';
import { StartupError } from '../kernel/errors.ts';
import { parseRegistry, type RegistryFile } from '../policy/registry/registry.ts';

/** Throws `StartupError('registry_invalid')` with one line per fault. */
export function readRegistry(file: string): RegistryFile {
  let text: string;
  try {
    text = fs.readFileSync(file, 'utf8');
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    throw new StartupError('registry_invalid', [`${file}: the model registry cannot be read: ${code}`]);
  }
  const parsed = parseRegistry(text, file);
  if (!parsed.ok) throw new StartupError('registry_invalid', parsed.error);
  return parsed.value;
}
