// Variables named METIS_… that set no key: other programs read them, or set them without being asked (15 §1).

/** Why a variable is perhaps meant as a setting; null = it is not. */
const FOREIGN: Readonly<Record<string, string | null>> = {
  METIS_TOKEN: null,
  METIS_DATABASE_PASSWORD: null,
  METIS_WORKSPACES: null,
  METIS_CONFIG: 'names the folder that docker-compose mounts, and sets nothing here; name a file with --config',
  METIS_PORT: 'is the port that docker-compose publishes, and sets nothing here; METIS_SERVER_PORT sets the port',
};

/** Kubernetes sets them in its pods for a Service named `metis`. */
const SERVICE_LINK =
  /^METIS_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$/;
const ADDRESS = /^(tcp|udp|sctp):\/\//;

export function isForeignVariable(name: string): boolean {
  return Object.hasOwn(FOREIGN, name) || SERVICE_LINK.test(name);
}

/** A line for each variable that was perhaps meant as a setting. */
export function warnOfForeignVariables(env: Readonly<Record<string, string | undefined>>): string[] {
  return Object.entries(FOREIGN).flatMap(([name, reason]) => {
    const text = env[name];
    if (reason === null || text === undefined || ADDRESS.test(text)) return [];
    return [`environment ${name}: ${reason}`];
  });
}
