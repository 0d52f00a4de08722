// `metis case` with its flags and its help (17 §2); its parts are loaded when it runs.
import { Argument, type Command } from 'commander';
import type { ServerFlags } from '#cli/terminal.ts';
import type { ServerAddress } from '#client/request.ts';
import type { CommandContext } from '../context.ts';
import { createCommand, parseSessionId, withServerFlags } from '../flags.ts';
import type { RunCaseFlags } from './run-case.ts';
import type { SaveFlags } from './save-case.ts';

type Finish = (code: Promise<number>) => Promise<void>;
type Ask = (flags: ServerFlags, body: (server: ServerAddress) => Promise<number>) => Promise<void>;

export function createCaseCommand(context: CommandContext, ask: Ask, finish: Finish): Command {
  const command = createCommand(
    'case',
    'Save a recorded session as a regression test, and run such tests without a model.',
    'metis run "Fix the bug" --case',
    'metis case save sess_01JZ... cases/bug --with-content',
    'metis case run cases/bug --junit report.xml',
  );
  command.addCommand(
    withServerFlags(
      createCommand(
        'save',
        'Write a recorded session to a folder.',
        'metis case save sess_01JZ... cases/bug --with-content',
      )
        .addArgument(new Argument('<session>', 'id of a session that was opened with --case').argParser(parseSessionId))
        .argument('<folder>', 'a new or empty folder')
        .option('--with-content', 'agree that prompts, answers and files of the workspace are written'),
    ).action((session: string, dir: string, flags: ServerFlags & SaveFlags) =>
      ask(flags, async (server) => (await import('./save-case.ts')).saveCase(context, server, { session, dir }, flags)),
    ),
  );
  command.addCommand(
    createCommand('run', 'Run a saved session again and compare.', 'metis case run cases/bug --junit report.xml')
      .argument('<folder>', 'the folder of the case')
      .option('--workspace <dir>', 'a copy of this folder is the workspace, in place of the saved one')
      .option('--junit <file>', 'also write the result as JUnit XML')
      .option('--json', 'print the result as JSON')
      .addHelpText(
        'after',
        `
Needs no key and no network. Exit code: 0 everything is as it was, 1 something
differs, 2 the case could not run.`,
      )
      .action((dir: string, flags: RunCaseFlags) =>
        finish(import('./run-case.ts').then(({ runCase }) => runCase(context, dir, flags))),
      ),
  );
  return command;
}
