// A server with people: two members, a viewer, an admin and a nameless admin, each with a token.
import { createHash } from 'node:crypto';
import type { Role } from '#protocol/people/person.ts';
import type { ConfigOver, EngineOptions } from '../../support/engine.ts';
import { type Answer, type Parsed, startServer, type TestServer } from '../../support/http.ts';

export const hash = (token: string) => createHash('sha256').update(token).digest('hex');
export const NAMELESS = 'nameless-0123456789abcdef0123456789';

export interface Someone {
  readonly name: string;
  readonly token: string;
  readonly headers: Readonly<Record<string, string>>;
  call(method: string, path: string, body?: unknown, headers?: Readonly<Record<string, string>>): Promise<Answer>;
  /** Opens a session in the test's workspace. */
  open(body?: object): Promise<Parsed>;
}

export interface People {
  readonly server: TestServer;
  readonly ann: Someone;
  readonly bob: Someone;
  readonly eve: Someone;
  readonly root: Someone;
  readonly nameless: Someone;
}

const token = (name: string, role: Role, over: object = {}) => ({
  token_sha256: hash(`${name}-secret`),
  role,
  daily_usd: null,
  monthly_usd: null,
  workspaces: null,
  expires_at: null,
  ...over,
});

export const TOKENS = {
  ann: token('ann', 'member'),
  bob: token('bob', 'member'),
  eve: token('eve', 'viewer'),
  root: token('root', 'admin'),
};

export function someone(server: TestServer, name: string, secret = `${name}-secret`): Someone {
  const headers = { authorization: `Bearer ${secret}` };
  const call: Someone['call'] = (method, path, body, more = {}) =>
    server.call(method, path, body, { ...headers, ...more });
  return {
    name,
    token: secret,
    headers,
    call,
    open: async (body = {}) => {
      const answer = await call('POST', '/sessions', { workspace_path: server.workspace, ...body });
      if (answer.status !== 201) throw new Error(`${answer.status} ${JSON.stringify(answer.body)}`);
      return answer.body;
    },
  };
}

export async function startPeople(options: Partial<EngineOptions> = {}, config: ConfigOver = {}): Promise<People> {
  const server = await startServer({
    ...options,
    config: { ...config, server: { auth_tokens: [NAMELESS], tokens: TOKENS, ...config.server } },
  });
  return {
    server,
    ann: someone(server, 'ann'),
    bob: someone(server, 'bob'),
    eve: someone(server, 'eve'),
    root: someone(server, 'root'),
    nameless: someone(server, '', NAMELESS),
  };
}
