// How the reading page looks: one column with the list of operations beside it, in light and in dark.

export const STYLE = `
:root {
  color-scheme: light dark;
  --ink: light-dark(#1d2129, #e4e6ea); --soft: light-dark(#59616e, #a2a9b5); --line: light-dark(#d9dde3, #353b45);
  --paper: light-dark(#ffffff, #15181d); --panel: light-dark(#f5f6f8, #1d2127); --link: light-dark(#0b5bb5, #7db8ff);
  --get: light-dark(#0b6e4f, #63d3a6); --post: light-dark(#8a4b00, #f0b35c); --patch: light-dark(#6b3fa0, #c7a2f2); --delete: light-dark(#b3261e, #ff9a92);
}
* { box-sizing: border-box; }
html { scroll-padding-top: 1rem; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
a { color: var(--link); text-underline-offset: 2px; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
code, pre { font: 0.875em/1.5 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
.frame { display: grid; grid-template-columns: 19rem minmax(0, 1fr); max-width: 82rem; margin: 0 auto; }
header { grid-column: 2; padding: 1.5rem 2rem 0; }
nav { grid-column: 1; grid-row: 1 / span 2; position: sticky; top: 0; height: 100vh; overflow-y: auto; padding: 1.5rem 1rem 3rem 1.5rem; border-right: 1px solid var(--line); font-size: 0.875rem; }
nav h2 { margin: 1.25rem 0 0.25rem; font-size: 0.8125rem; color: var(--soft); }
nav ul { list-style: none; margin: 0; padding: 0; }
nav a { display: block; padding: 0.125rem 0; color: var(--ink); text-decoration: none; }
nav a:hover { text-decoration: underline; }
main { grid-column: 2; padding: 0 2rem 6rem; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 0.5rem; }
main > h2 { margin: 3.5rem 0 0; padding-top: 1rem; border-top: 2px solid var(--ink); font-size: 1.25rem; text-transform: capitalize; }
article { padding: 1.75rem 0 0.5rem; }
article + article { margin-top: 1.5rem; border-top: 1px solid var(--line); }
h3 { display: flex; flex-wrap: wrap; gap: 0 0.75rem; align-items: baseline; margin: 0; font-size: 1.0625rem; }
h3 code { font-size: 1rem; font-weight: 600; }
h4 { margin: 1.25rem 0 0.25rem; font-size: 0.875rem; color: var(--soft); }
p { margin: 0.375rem 0; max-width: 46rem; }
.soft { color: var(--soft); font-size: 0.875rem; }
.verb { font-weight: 700; }
.GET { color: var(--get); } .POST { color: var(--post); } .PATCH, .PUT { color: var(--patch); } .DELETE { color: var(--delete); }
pre { margin: 0.5rem 0; padding: 0.75rem 1rem; background: var(--panel); border: 1px solid var(--line); border-radius: 4px; overflow-x: auto; white-space: pre-wrap; }
.table { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 0.875rem; }
th { text-align: left; font-weight: 600; color: var(--soft); }
th, td { padding: 0.3rem 1rem 0.3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td:first-child { width: 34%; } td:nth-child(2) { width: 20%; }
td b { color: var(--delete); }
.choice td { background: var(--panel); padding-left: 0.5rem; }
details { margin: 0.5rem 0; } summary { cursor: pointer; font-size: 0.9375rem; }
@media (max-width: 56rem) {
  .frame { display: block; } header { padding: 1rem 1rem 0; } nav { position: static; height: auto; border-right: 0; border-bottom: 1px solid var(--line); padding: 1rem; }
  nav ul { columns: 9rem; } main { padding: 0 1rem 4rem; }
}
@media print { nav { display: none; } .frame { display: block; } }
`;
