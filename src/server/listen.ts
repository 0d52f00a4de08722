// Binding the configured address, or saying why it cannot be (05 §4).

import type { HttpApp } from '#http/http-app.ts';
import type { Config } from '#protocol/config.ts';
import { StartupError } from '#protocol/errors.ts';

/** Connections that wait to be taken; the system lowers it to what it allows. Node's 511 is too few for a crowd that comes back at once. */
const BACKLOG = 4096;

/** Throws `StartupError('address_in_use' | 'address_unusable')`. */
export async function listen(http: HttpApp, { host, port }: Config['server']): Promise<{ readonly url: string }> {
  try {
    await http.listen({ host, port, backlog: BACKLOG });
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === 'EADDRINUSE') {
      throw new StartupError('address_in_use', [
        `port ${port} on ${host} is taken; stop what listens there or choose another with --port`,
      ]);
    }
    if (code === 'EACCES' || code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND') {
      throw new StartupError('address_unusable', [
        `${host}:${port} cannot be bound (${code}); check --host and --port`,
      ]);
    }
    throw cause;
  }
  const address = http.server.address();
  // The configured port may be 0: then the system chose.
  const bound = typeof address === 'object' && address !== null ? address.port : port;
  return { url: `http://${host.includes(':') ? `[${host}]` : host}:${bound}` };
}
