// Draws docs/architecture.svg: floors and rooms of src/, and who imports whom, read from the imports themselves.
// It shows no counts, so that it changes only with a room or an arrow. `--print` writes it to stdout instead.
import fs from 'node:fs';
import path from 'node:path';

/** Floors from the roof down: title, hue, folders with what they are. A folder that stands nowhere here is an error. */
const FLOORS = [
  [
    '5 composition',
    265,
    {
      'server.ts': 'the package by its own name',
      'main.ts': 'argv',
      server: 'configuration, wiring, commands that own files',
    },
  ],
  [
    '4 surfaces',
    300,
    {
      http: 'REST, WebSocket, SSE, gateway',
      cli: 'terminal',
      dashboard: 'web page',
      mcp: 'MCP',
      acp: 'ACP',
      client: 'typed client',
    },
  ],
  [
    '3 adapters',
    45,
    {
      store: 'SQLite, PostgreSQL, cluster, live events',
      models: 'wires and adapters of providers',
      tools: 'what models call, and the workspace',
    },
  ],
  ['2 core', 95, { core: 'engine, policy, learning, and the ports that adapters implement: no I/O' }],
  ['1 protocol', 195, { protocol: 'nouns, events, API bodies, ids, money, errors, clock' }],
];
/** Rooms of the engine from the door down: a room imports those behind it in this list. */
const ENGINE_ROOMS = JSON.parse(fs.readFileSync(new URL('engine-rooms.json', import.meta.url), 'utf8')).reverse();
const DOOR = 'the door';
const ENGINE = 'core/engine';

const root = path.resolve(import.meta.dirname, '..');
const files = fs
  .readdirSync(path.join(root, 'src'), { recursive: true, encoding: 'utf8' })
  .map((name) => name.replaceAll(path.sep, '/'))
  .filter((name) => /\.tsx?$/.test(name))
  .sort()
  .map((name) => ({ name, text: fs.readFileSync(path.join(root, 'src', name), 'utf8') }));

const folderOf = (name) => name.split('/')[0];
const FOLDERS = FLOORS.flatMap(([, , folders]) => Object.keys(folders)).filter((folder) =>
  files.some(({ name }) => folderOf(name) === folder),
);
const homeless = [...new Set(files.map(({ name }) => folderOf(name)))].filter((folder) => !FOLDERS.includes(folder));
if (homeless.length > 0) throw new Error(`no floor for src/${homeless.join(', src/')}: add it to FLOORS`);

/** Folders directly below one folder; those of the engine in their order. */
function roomsOf(folder) {
  const below = files
    .filter(({ name }) => name.startsWith(`${folder}/`))
    .map(({ name }) => name.slice(folder.length + 1));
  const names = [...new Set(below.filter((name) => name.includes('/')).map((name) => name.split('/')[0]))];
  if (folder !== ENGINE) return names.sort();
  const placeless = names.filter((room) => !ENGINE_ROOMS.includes(room));
  if (placeless.length > 0)
    throw new Error(`no place for ${ENGINE}/${placeless.join(', ')}: add it to scripts/engine-rooms.json`);
  return [DOOR, ...ENGINE_ROOMS.filter((room) => names.includes(room))];
}
const isEngine = (name) => name.startsWith(`${ENGINE}/`);
const engineRoomOf = (name) => (name.split('/').length === 3 ? DOOR : name.split('/')[2]);

/** Who imports whom, as `from to`. */
const folderArrows = new Set();
const roomArrows = new Set();
for (const { name, text } of files) {
  for (const match of text.matchAll(/\bfrom\s*'([.#][^']+)'|\bimport\(\s*'([.#][^']+)'\s*\)/g)) {
    const written = match[1] ?? match[2];
    const to = written.startsWith('#') ? written.slice(1) : path.posix.join(path.posix.dirname(name), written);
    folderArrows.add(`${folderOf(name)} ${folderOf(to)}`);
    if (isEngine(name) && isEngine(to)) {
      roomArrows.add(`${engineRoomOf(name)} ${engineRoomOf(to)}`);
    }
  }
}

const WIDTH = 1120;
const LEFT = 150;
const GAP = 10;
const CHAR = 6.65;
const out = [];
const label = (x, y, value, kind = '') => out.push(`<text x="${x}" y="${y}" class="${kind}">${value}</text>`);
const box = ([x, y, width, height], kind, radius = 6) =>
  out.push(`<rect x="${x}" y="${y}" width="${width}" height="${height}" rx="${radius}" class="${kind}"/>`);
const widthOf = (value, padding) => Math.ceil(value.length * CHAR) + 2 * padding;

/** Rooms as lines of chips that fit into a width. */
function chipLines(rooms, width) {
  const lines = [];
  let x = width + 1;
  for (const room of rooms) {
    const chip = widthOf(room, 9);
    if (x + chip > width) {
      lines.push([]);
      x = 0;
    }
    lines.at(-1).push({ room, x, width: chip });
    x += chip + 6;
  }
  return lines;
}

/** A folder with its rooms, not yet in its place. */
function cardOf(folder, caption, most) {
  const rooms = roomsOf(folder);
  const text = widthOf(`${folder}  ${caption}`, 14);
  const all = rooms.reduce((sum, room) => sum + widthOf(room, 9) + 6, 22);
  const width = Math.min(most, Math.max(text, Math.min(all, most)));
  const lines = chipLines(rooms, width - 28);
  return { folder, caption, width, lines, height: 34 + lines.length * 27 + (lines.length > 0 ? 5 : 0) };
}

let y = 66;
const MOST = WIDTH - LEFT - 2 * GAP;
out.push(`<path d="M20 60 L${WIDTH / 2} 10 L${WIDTH - 20} 60 Z" class="roof"/>`);
label(WIDTH / 2, 46, 'metis · imports run downwards', 'title middle');
for (const [title, hue, folders] of FLOORS) {
  const cards = Object.entries(folders)
    .filter(([folder]) => FOLDERS.includes(folder))
    .map(([folder, caption]) => cardOf(folder, caption, MOST));
  if (cards.length === 0) continue;
  const rows = [];
  let x = MOST + 1;
  for (const card of cards) {
    if (x + card.width > MOST) {
      rows.push([]);
      x = 0;
    }
    rows.at(-1).push({ ...card, x: LEFT + x });
    x += card.width + GAP;
  }
  const heights = rows.map((row) => Math.max(...row.map(({ height }) => height)));
  const tall = heights.reduce((sum, height) => sum + height + GAP, GAP);
  out.push(`<g style="--h:${hue}">`);
  box([20, y, WIDTH - 40, tall], 'floor', 4);
  box([20, y, 5, tall], 'stripe', 2);
  label(40, y + 32, title, 'title');
  let top = y + GAP;
  for (const [i, row] of rows.entries()) {
    for (const card of row) {
      box([card.x, top, card.width, heights[i]], 'card');
      label(
        card.x + 14,
        top + 22,
        `<tspan class="name">${card.folder}</tspan>  <tspan class="quiet">${card.caption}</tspan>`,
      );
      for (const [n, line] of card.lines.entries()) {
        for (const chip of line) {
          box([card.x + 14 + chip.x, top + 34 + n * 27, chip.width, 22], chip.room === DOOR ? 'door' : 'chip', 11);
          label(card.x + 14 + chip.x + chip.width / 2, top + 49 + n * 27, chip.room, 'middle');
        }
      }
    }
    top += heights[i] + GAP;
  }
  out.push('</g>');
  y += tall + 4;
}

/** A triangle of dots: a row imports its columns. Returns its height. */
function staircase(left, top, title, { names, arrows, hue }) {
  const CELL = 24;
  const first = left + 96;
  label(left, top, title, 'title');
  const start = top + 104;
  out.push(`<g style="--h:${hue}">`);
  for (const [i, name] of names.entries()) {
    const x = first + i * CELL;
    out.push(`<text transform="translate(${x + 16} ${start - 8}) rotate(-55)">${name}</text>`);
    label(left, start + i * CELL + 15, name);
    for (const [j, to] of names.entries()) {
      const cell = [first + j * CELL, start + i * CELL, CELL - 3, CELL - 3];
      if (j === i) box(cell, 'self', 4);
      else if (arrows.has(`${name} ${to}`)) box(cell, 'arrow', 4);
      else if (j > i) box(cell, 'none', 4);
    }
  }
  out.push('</g>');
  return 104 + names.length * CELL;
}

y += 34;
const left = staircase(30, y, 'Folders: a row imports its columns', { names: FOLDERS, arrows: folderArrows, hue: 220 });
const engine = { names: roomsOf(ENGINE), arrows: roomArrows, hue: 20 };
const right = staircase(WIDTH / 2 + 40, y, 'Rooms of the engine: a row imports its columns', engine);
y += Math.max(left, right) + 16;

const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${y}" width="${WIDTH}" height="${y}" role="img" aria-label="Floors and rooms of the source, and who imports whom">
<style>
svg { font: 11px ui-monospace, SFMono-Regular, Menlo, "DejaVu Sans Mono", monospace; background: #fff; --h: 265 }
text { fill: #1f2328; white-space: pre } .quiet { fill: #59636e } .title { font-weight: 600; fill: #59636e } .name { font-weight: 700 }
.middle { text-anchor: middle } .roof { fill: hsl(var(--h) 55% 94%) } .floor { fill: hsl(var(--h) 60% 97%) }
.stripe, .arrow { fill: hsl(var(--h) 50% 60%) } .card { fill: #fff; stroke: hsl(var(--h) 30% 84%) }
.chip { fill: hsl(var(--h) 60% 95%) } .door { fill: hsl(var(--h) 85% 84%) } .self { fill: #c8d1da } .none { fill: #f3f5f7 }
@media (prefers-color-scheme: dark) {
svg { background: #0d1117 } text { fill: #f0f6fc } .quiet, .title { fill: #9198a1 }
.roof { fill: hsl(var(--h) 25% 20%) } .floor { fill: hsl(var(--h) 22% 11%) } .stripe, .arrow { fill: hsl(var(--h) 45% 52%) }
.card { fill: #0d1117; stroke: hsl(var(--h) 22% 26%) } .chip { fill: hsl(var(--h) 28% 17%) } .door { fill: hsl(var(--h) 45% 30%) }
.self { fill: #3d444d } .none { fill: #151b23 } }
</style>
${out.join('\n')}
</svg>
`;
if (process.argv.includes('--print')) process.stdout.write(svg);
else fs.writeFileSync(path.join(root, 'docs/architecture.svg'), svg);
