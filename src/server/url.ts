// The port of an HTTP address, with the standard one filled in.

const STANDARD_PORTS: Readonly<Record<string, number>> = { 'http:': 80, 'https:': 443 };

export function readPort({ protocol, port }: URL): number {
  if (port !== '') return Number(port);
  return STANDARD_PORTS[protocol] ?? 443;
}
