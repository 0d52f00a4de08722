// grep: a regular expression over the files of the workspace, searched by ripgrep (09 §13).

import type { ToolFactory } from '#core/ports/tool.ts';
import { toolText } from '#protocol/tool.ts';
import { define, filesOf, inputSchema, pathSchema } from './definition.ts';
import { createHitList } from './hit-list.ts';
import { type Search, startSearch } from './ripgrep.ts';

const definition = define({
  name: 'grep',
  description:
    'Searches the text files of the workspace for a regular expression (linear-time syntax: no look-around, no back-references) and shows the lines that match as path:line: text. Dependency, build and cache folders are left out.',
  side_effects: 'read',
  file_access: 'read',
  path_fields: [],
  input_schema: inputSchema(
    {
      pattern: { type: 'string', description: 'The regular expression.' },
      path_glob: pathSchema(
        'Only files that match: * within a name, ** across folders; without a slash it matches the file name.',
      ),
      case_sensitive: { type: 'boolean', default: false, description: 'Tell upper from lower case.' },
      max_results: { type: 'integer', minimum: 1, maximum: 200, default: 50, description: 'Most lines to show.' },
    },
    ['pattern'],
  ),
});

/** @param ripgrep path of the program */
export function grep({ ripgrep }: { readonly ripgrep: string }): ToolFactory {
  return () => {
    let stop: (() => Promise<boolean>) | null = null;
    return {
      definition,
      cancel: async () => (stop === null ? false : stop()),
      async execute(input, context) {
        context.signal.throwIfAborted();
        const files = filesOf(context);
        const pattern = input.pattern as string;
        const max = (input.max_results as number | undefined) ?? 50;
        const list = createHitList(files, max + 1);
        let running: Search | null = null;
        stop = async () => running?.stop() ?? false;
        const onAbort = () => void running?.stop();
        context.signal.addEventListener('abort', onAbort, { once: true });
        let scanned = 0;
        try {
          for (const { prefix, absolute } of files.roots) {
            context.signal.throwIfAborted();
            running = startSearch({
              program: ripgrep,
              root: absolute,
              pattern,
              glob: (input.path_glob as string | undefined) ?? null,
              caseSensitive: input.case_sensitive === true,
              // One more than is shown, so that it is known whether there are more.
              maxPerFile: max + 1,
            });
            for await (const { path, line } of running.hits) await list.add(`${prefix}${path}`, line);
            context.signal.throwIfAborted();
            scanned += await running.scanned();
          }
          const hits = await list.hits();
          if (hits.length === 0) return toolText(`(no matches for '${pattern}'; scanned ${scanned} files)`);
          const shown = hits.slice(0, max);
          const note =
            hits.length > max ? ` (truncated at max_results=${max}; refine pattern or path_glob for more)` : '';
          return toolText([`${shown.length} match(es)${note}`, ...shown].join('\n'));
        } finally {
          context.signal.removeEventListener('abort', onAbort);
          await running?.stop();
        }
      },
    };
  };
}
