// Draws docs/worktrees.svg: the three outcomes of a worker in a worktree (20 §2, §3).
import fs from 'node:fs';
import path from 'node:path';

const root = path.join(import.meta.dirname, '..');
const WIDTH = 980;
const LEFT = 130;
const RIGHT = 700;
const ROW = 150;

/** Title, hue, what happens at the end, and what the planner reads. */
const OUTCOMES = [
  {
    title: 'The changes merge',
    hue: 145,
    end: 'merge, write',
    state: 'applied: true',
    lines: ['[changed 1 file: src/a.ts]', '[worker sess_…; continuing costs about $0.004 until 14:05, then $0.031]'],
    isWritten: true,
  },
  {
    title: 'They conflict with changes made meanwhile',
    hue: 30,
    end: 'conflict in src/a.ts',
    state: 'applied: false, continue → the merge with its markers',
    lines: [
      '[changes not applied, conflicts in: src/a.ts; continue this worker to resolve them]',
      '[worker sess_…; continuing costs about $0.004 until 14:05, then $0.031]',
    ],
    isWritten: false,
  },
  {
    title: 'The worker fails, or the call keeps its changes',
    hue: 220,
    end: 'kept as a ref',
    state: 'applied: false, POST /delegations/{worker_session_id}/apply',
    lines: [
      '[changes not applied; kept as refs/metis/sess_…/result]',
      '[worker sess_…; continuing costs about $0.031]',
    ],
    isWritten: false,
  },
];

const out = [];
const label = (x, y, text, kind = '') => out.push(`<text x="${x}" y="${y}" class="${kind}">${text}</text>`);
let y = 20;
for (const { title, hue, end, state, lines, isWritten } of OUTCOMES) {
  const [line, branch] = [y + 84, y + 48];
  out.push(
    `<g style="--h:${hue}">`,
    `<rect x="10" y="${y}" width="${WIDTH - 20}" height="${ROW}" rx="4" class="panel"/>`,
  );
  label(26, y + 24, title, 'title');
  label(26, line + 4, 'workspace', 'quiet');
  label(LEFT + 92, branch - 8, 'worktree: a copy of the workspace as it is now', 'quiet');
  out.push(
    `<path d="M${LEFT} ${line} H${RIGHT + 240}" class="line"/>`,
    `<path d="M${LEFT + 20} ${line} C${LEFT + 50} ${line} ${LEFT + 50} ${branch} ${LEFT + 80} ${branch} H${RIGHT - 80}" class="branch"/>`,
    `<circle cx="${LEFT + 20}" cy="${line}" r="5" class="dot"/>`,
  );
  for (const x of [LEFT + 190, LEFT + 310, LEFT + 430])
    out.push(`<circle cx="${x}" cy="${branch}" r="4" class="dot"/>`);
  const into = isWritten ? `C${RIGHT - 50} ${branch} ${RIGHT - 50} ${line} ${RIGHT - 20} ${line}` : `H${RIGHT - 20}`;
  out.push(`<path d="M${RIGHT - 80} ${branch} ${into}" class="branch${isWritten ? '' : ' open'}"/>`);
  const place = isWritten ? line : branch;
  out.push(`<circle cx="${RIGHT - 20}" cy="${place}" r="6" class="${isWritten ? 'dot' : 'ring'}"/>`);
  label(RIGHT - 4, branch + 4, end, 'name');
  label(LEFT + 20, line + 20, state, 'name');
  for (const [i, text] of lines.entries()) label(LEFT + 20, line + 37 + i * 16, text, 'quiet');
  out.push('</g>');
  y += ROW + 12;
}

const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${y + 8}" width="${WIDTH}" height="${y + 8}" role="img" aria-label="The three outcomes of a worker in a worktree: applied, in conflict, kept">
<style>
svg { font: 12px ui-monospace, SFMono-Regular, Menlo, "DejaVu Sans Mono", monospace; background: #fff; --h: 220 }
text { fill: #1f2328; white-space: pre } .quiet { fill: #59636e } .title { font-weight: 600 } .name { font-weight: 600 }
.panel { fill: hsl(var(--h) 60% 97%); stroke: hsl(var(--h) 30% 84%) } .line { stroke: #59636e; stroke-width: 2; fill: none }
.branch { stroke: hsl(var(--h) 50% 45%); stroke-width: 2; fill: none } .open { stroke-dasharray: 5 4 }
.dot { fill: hsl(var(--h) 50% 45%) } .ring { fill: #fff; stroke: hsl(var(--h) 50% 45%); stroke-width: 2 }
@media (prefers-color-scheme: dark) {
svg { background: #0d1117 } text { fill: #f0f6fc } .quiet { fill: #9198a1 } .ring { fill: #0d1117 }
.panel { fill: hsl(var(--h) 22% 11%); stroke: hsl(var(--h) 22% 26%) } .line { stroke: #9198a1 } }
</style>
${out.join('\n')}
</svg>
`;
fs.writeFileSync(path.join(root, 'docs/worktrees.svg'), svg);
