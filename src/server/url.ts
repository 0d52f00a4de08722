// Addresses: their port, and the form in which messages show them.

const STANDARD_PORTS: Readonly<Record<string, number>> = { 'http:': 80, 'https:': 443 };

export function readPort({ protocol, port }: URL): number {
  if (port !== '') return Number(port);
  return STANDARD_PORTS[protocol] ?? 443;
}

/** In place of a secret. */
export const HIDDEN = '(hidden)';

/** Without user, password and parameters. A list of addresses has further users behind the first host. */
export function hideCredentials(text: string): string {
  if (!URL.canParse(text)) return HIDDEN;
  const url = new URL(text);
  if (url.pathname.includes('@')) return HIDDEN;
  url.username = '';
  url.password = '';
  url.search = '';
  url.hash = '';
  return url.href;
}

/** A text that quotes addresses, perhaps without their scheme: each without its user and password. */
export function hideQuotedCredentials(text: string): string {
  return text.replaceAll(/([a-z][a-z0-9+.-]*:\/\/)[^\s'"]*@/gi, '$1').replaceAll(/[^\s'"/]+:[^\s'"/]*@(?=\S)/g, '');
}
