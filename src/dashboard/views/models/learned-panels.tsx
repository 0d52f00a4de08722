// What was learned in one workspace: shapes of tasks, and quality beside cost, under one choice of the workspace.
import { useState } from 'preact/hooks';
import { useWorkspacePaths } from '#dashboard/data/workspaces.ts';
import { baseName } from '#dashboard/format/number.ts';
import { Menu } from '#dashboard/parts/menu.tsx';
import { Failure } from '#dashboard/parts/notice.tsx';
import { ComparisonNeeds, QualityPanel } from './quality-panel.tsx';
import { TaskShapes } from './task-shapes.tsx';

/** @param props.wanted the workspace at first; null = that of the newest session */
export function LearnedPanels({ wanted }: { readonly wanted: string | null }) {
  const [chosen, choose] = useState(wanted);
  const { data: paths, error, reload } = useWorkspacePaths();
  const workspace = chosen ?? paths?.[0] ?? null;
  return (
    <section aria-labelledby="learned">
      <div class="filters">
        <h2 id="learned">Learned</h2>
        {workspace !== null && (
          <Menu
            label="Workspace"
            choices={[...new Set([workspace, ...(paths ?? [])])].map((path) => ({
              value: path,
              label: baseName(path),
              hint: path,
            }))}
            value={workspace}
            onChoose={choose}
          />
        )}
      </div>
      {error !== null && <Failure error={error} title="The workspaces cannot be read" retry={reload} />}
      {workspace === null && paths !== null && <ComparisonNeeds>No session was opened yet.</ComparisonNeeds>}
      {workspace !== null && (
        <>
          <QualityPanel key={`quality ${workspace}`} workspace={workspace} />
          <TaskShapes key={`shapes ${workspace}`} workspace={workspace} />
        </>
      )}
    </section>
  );
}
