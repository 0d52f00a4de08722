// Creates a worker for a model: proposed, checked, approved as a whole definition, stored with its session tree (13 §6.3).
import path from 'node:path';
import { describeIssues } from '#core/policy/parsing/plain-issue.ts';
import { isSameTool } from '#core/policy/tools/tool-names.ts';
import { appendLine, checkDefinition, type Fault, readDefinition } from '#core/policy/workers/read-definition.ts';
import { expandSpec, formatDefinition, WorkerSpecSchema } from '#core/policy/workers/write-definition.ts';
import type { WorkerMaker, WorkerProposal } from '#core/ports/tool-port.ts';
import type { Issue } from '#protocol/errors.ts';
import { draft } from '#protocol/event.ts';
import type { SessionId } from '#protocol/ids.ts';
import type { ToolUseBlock } from '#protocol/message.ts';
import { ToolError, toolText } from '#protocol/tool.ts';
import type { FoundWorker, SessionWorker, WorkerDefinition } from '#protocol/worker-definition.ts';
import type { DefinitionsEngine, Runtime, Storage } from '../state/engine.ts';
import type { TurnPlan } from '../state/turn-run.ts';
import { checkWorker, createCheckContext } from './find-workers.ts';

interface WorkerDraft {
  readonly definition: WorkerDefinition | null;
  readonly found: FoundWorker | null;
  readonly issues: readonly Issue[];
  /** The worker of this session that the new one replaces. */
  readonly replaced: SessionWorker | null;
}

type ProposalReading = Pick<WorkerDraft, 'definition' | 'issues'>;

export function createWorkerMaker(engine: DefinitionsEngine, run: TurnPlan, call: ToolUseBlock): WorkerMaker {
  const { session } = run;
  const resolveCopyPath = (name: string) =>
    path.join(engine.config.workers.generated_dir, session.root_session_id, `${name}.yaml`);

  async function draftWorker(proposal: WorkerProposal): Promise<WorkerDraft> {
    const read = 'yaml' in proposal ? readYamlProposal(proposal.yaml) : readSpecProposal(engine, run, proposal.spec);
    if (read.definition === null) return { ...read, found: null, replaced: null };
    const { definition } = read;
    const root = session.workspace_path;
    const found = checkWorker(
      engine,
      await engine.library.complete(root, definition),
      createCheckContext(engine.tools.knownTools(root), [definition.name]),
    );
    const issues = [...read.issues, ...found.errors.map(({ path: at, message }) => ({ path: at, message }))];
    const known = await engine.store.workers.list(session.root_session_id);
    const replaced =
      known.find((worker) => worker.name === definition.name && isReplaceable(worker, session.id)) ?? null;
    const names = [
      ...(await engine.library.names(root)),
      ...known.filter((w) => w !== replaced).map(({ name }) => name),
    ];
    const other = names.find((taken) => taken.toLowerCase() === definition.name.toLowerCase());
    if (other !== undefined)
      issues.push({
        path: 'name',
        message: `worker_exists: there is a worker "${other}" already; choose another name`,
      });
    return { definition, found, issues, replaced };
  }

  return {
    check: async (proposal) => (await draftWorker(proposal)).issues,
    async describe(proposal) {
      const { definition } = await draftWorker(proposal);
      if (definition === null) return {};
      return { ...call.input, yaml: formatDefinition(definition), path: resolveCopyPath(definition.name) };
    },
    async make(proposal) {
      return engine.library.change(session.workspace_path, () => makeWorker(proposal));
    },
  };

  async function makeWorker(proposal: WorkerProposal) {
    const { definition, found, issues, replaced } = await draftWorker(proposal);
    if (issues.length > 0 || definition === null || found === null || found.digest === null)
      throw new ToolError('validation_error', issues.map((i) => `${i.path}: ${i.message}`).join('\n'));
    const yaml = formatDefinition(definition);
    const worker: SessionWorker = {
      root_session_id: session.root_session_id,
      name: definition.name,
      created_by_session_id: session.id,
      created_by_tool_use_id: call.id,
      yaml,
      path: resolveCopyPath(definition.name),
      digest: found.digest,
      edited_by_user: 'yaml' in proposal || JSON.stringify(proposal.spec) !== JSON.stringify(call.input),
      created_at: engine.clock.now(),
    };
    await storeWorker(engine, run, worker, replaced);
    await engine.library.keepCopy(worker.path ?? '', yaml).catch((err: unknown) => {
      engine.log.warn({ err, path: worker.path }, 'the copy of a worker for people could not be written');
    });
    return toolText(
      JSON.stringify(describeCreated(worker, definition, { asked: call.input.name, replaced: replaced !== null })),
    );
  }
}

function describeCreated(
  { name, digest, path: copy, edited_by_user }: SessionWorker,
  definition: WorkerDefinition,
  { asked, replaced }: { readonly asked: unknown; readonly replaced: boolean },
) {
  const created = { name, digest, path: copy, edited_by_user, replaced };
  if (asked === name) return { ...created, definition };
  return { ...created, requested_name: asked, definition };
}

/** A session may replace only workers that it made itself: not locked ones, and not those kept in the project. */
function isReplaceable(worker: SessionWorker, session: SessionId): boolean {
  return worker.created_by_session_id === session && readYamlProposal(worker.yaml).definition?.locked === false;
}

async function storeWorker(
  engine: Storage,
  run: TurnPlan,
  worker: SessionWorker,
  replaced: SessionWorker | null,
): Promise<void> {
  const called = await engine.store.events.listOfTurn(run.turn.id, ['tool.called']);
  const parent = called.find(({ payload }) => payload.tool_use_id === worker.created_by_tool_use_id)?.id ?? null;
  await engine.journal.commit({
    writes: [{ kind: replaced === null ? 'worker.insert' : 'worker.replace', worker }],
    emit: [
      draft({
        type: 'worker.created',
        session_id: run.session.id,
        turn_id: run.turn.id,
        parent,
        payload: {
          name: worker.name,
          origin: 'session',
          digest: worker.digest,
          path: worker.path,
          tool_use_id: worker.created_by_tool_use_id,
          edited_by_user: worker.edited_by_user,
          replaces_digest: replaced?.digest ?? null,
        },
      }),
    ],
  });
}

function readYamlProposal(yaml: string): ProposalReading {
  const { definition, errors } = readDefinition(yaml, { name: null, file: null, format: 'yaml' });
  const issues = errors.map(({ path: at, message, line }) => ({
    path: at,
    message: appendLine(message, line),
  }));
  return { definition, issues };
}

function readSpecProposal(
  engine: Pick<Runtime, 'config'>,
  run: Pick<TurnPlan, 'turn'>,
  input: Readonly<Record<string, unknown>>,
): ProposalReading {
  const spec = WorkerSpecSchema.safeParse(input);
  const toIssues = (faults: readonly Fault[]) =>
    faults.map((fault) => ({ path: fault.path.map(String).join('.'), message: fault.message }));
  if (!spec.success) return { definition: null, issues: toIssues(describeIssues(spec.error)) };
  const expanded = expandSpec(spec.data, engine.config.workers.creation, run.turn.tools);
  const { definition, faults } = checkDefinition(expanded, null);
  const foreign = spec.data.tools.filter((tool) => !run.turn.tools.some((own) => isSameTool(tool, own)));
  return {
    definition,
    issues: [
      ...toIssues(faults),
      ...foreign.map((tool) => ({ path: 'tools', message: `"${tool}" is not one of your own tools` })),
    ],
  };
}
