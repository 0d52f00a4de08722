// Which callers are let in: the Host and Origin rules against DNS rebinding and foreign pages, and bearer tokens (05 §1.2 to §1.4).
const LOOPBACK = new Set(['localhost', '127.0.0.1', '[::1]']);
const HTTP_PORT = 80;

export interface HostSettings {
  readonly host: string;
  readonly allowed_hosts: readonly string[];
}

/** Whether the server listens for this machine only. */
export function isLoopback(host: string): boolean {
  return LOOPBACK.has(bracketIpv6(host.toLowerCase()));
}

/**
 * Makes the Host rule: loopback names with our port, the configured host (with our port or none), and the listed
 * hosts (with any port when listed without one).
 */
export function createHostRule({ host, allowed_hosts }: HostSettings) {
  const own = bracketIpv6(host.toLowerCase());
  const listed = new Set(allowed_hosts.map((entry) => entry.toLowerCase()));

  return function isOurs(header: string | undefined, ourPort: number): boolean {
    const value = header?.toLowerCase() ?? '';
    const parts = /^(\[[0-9a-f:.]+\]|[^:\s/@]+)(?::(\d{1,5}))?$/.exec(value);
    const name = parts?.[1];
    if (name === undefined) return false;
    const port = parts?.[2] === undefined ? null : Number(parts[2]);
    if (LOOPBACK.has(name) && (port ?? HTTP_PORT) === ourPort) return true;
    if (name === own && (port === null || port === ourPort)) return true;
    return listed.has(value) || listed.has(name);
  };
}

/** The authority of a target in absolute form, which replaces the Host header; null for any other target. */
export function parseAuthority(target: string): string | null {
  return /^[a-z][a-z0-9+.-]*:\/\/([^/?#]*)/i.exec(target)?.[1] ?? null;
}

/** `/path?query` of a target in absolute form; any other as it is. */
export function toOriginForm(target: string): string {
  const authority = /^[a-z][a-z0-9+.-]*:\/\/[^/?#]*/i.exec(target);
  if (authority === null) return target;
  const rest = target.slice(authority[0].length);
  if (rest.startsWith('/')) return rest;
  return `/${rest}`;
}

/** The names, without ports, by which requests are served, as a person would write them. */
export function servedNames({ host, allowed_hosts }: HostSettings): readonly string[] {
  return [...new Set([...LOOPBACK, bracketIpv6(host.toLowerCase()), ...allowed_hosts])];
}

/** An IPv6 address has brackets in a URL and in a Host header. */
export function bracketIpv6(host: string): string {
  if (host.includes(':') && !host.startsWith('[')) return `[${host}]`;
  return host;
}

type OriginVerdict = 'none' | 'own' | 'listed' | 'foreign';

/** Makes the Origin rule. `hostHeader` must have passed the Host rule; a proxy in front may serve its name over TLS. */
export function createOriginRule(listed: readonly string[]) {
  const origins = new Set(listed);
  return function judge(origin: string | undefined, hostHeader: string | undefined): OriginVerdict {
    if (origin === undefined) return 'none';
    if (origins.has(origin)) return 'listed';
    const host = (hostHeader ?? '').toLowerCase();
    const own = [`http://${host.replace(/:80$/, '')}`, `https://${host.replace(/:443$/, '')}`];
    return own.includes(origin.toLowerCase()) ? 'own' : 'foreign';
  };
}

/**
 * Whether a page of another origin loads this as an image, a script or a frame: browsers send no `Origin` with such a
 * GET, but say where it comes from. A link that a person follows is no load.
 */
export function isForeignLoad(headers: Readonly<Record<string, unknown>>): boolean {
  const site = headers['sec-fetch-site'];
  if (site === undefined || site === 'same-origin' || site === 'none') return false;
  return headers['sec-fetch-mode'] !== 'navigate' || headers['sec-fetch-dest'] !== 'document';
}

/** The token of an `Authorization: Bearer` header; null when there is none or it has another form. */
export function parseBearer(header: string | undefined): string | null {
  return /^Bearer +(\S+) *$/i.exec(header ?? '')?.[1] ?? null;
}
