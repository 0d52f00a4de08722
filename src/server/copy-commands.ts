// Commands that copy a whole database: into a file and back, or into PostgreSQL and back (02 §6, 16 §9).
import type { Command } from 'commander';
import type { MigrateFlags } from './commands/migrate.ts';
import type { ConfigFlags } from './config.ts';
import type { CommandContext } from './context.ts';
import { createCommand, withConfigFlags } from './flags.ts';

/** @param finish ends the process with the code of a command */
export function addCopyCommands(
  program: Command,
  context: CommandContext,
  finish: (code: Promise<number>) => Promise<void>,
): void {
  program.addCommand(
    withConfigFlags(
      createCommand('backup', 'Copy the database to a new file; the server may run.', 'metis backup metis-monday.db'),
    )
      .argument('<file>', 'the new file; must not exist')
      .action((file: string, flags: ConfigFlags) =>
        finish(import('./commands/database.ts').then(({ backup }) => backup(context, flags, file))),
      ),
  );
  program.addCommand(
    withConfigFlags(
      createCommand(
        'restore',
        'Restore a backup into a data folder without a database.',
        'metis restore metis-monday.db --data ./data',
      ),
    )
      .argument('<file>', 'a file that metis backup wrote')
      .action((file: string, flags: ConfigFlags) =>
        finish(import('./commands/database.ts').then(({ restore }) => restore(context, flags, file))),
      ),
  );
  program.addCommand(
    withConfigFlags(
      createCommand(
        'migrate',
        'Copy the database of a data folder into an empty PostgreSQL database, or back into a new folder.',
        'metis migrate --to postgres://metis@db.internal/metis --verify',
        'METIS_DATABASE_URL=postgres://db/metis metis migrate --to sqlite:./copy',
      ),
    )
      .requiredOption('--to <address>', 'address of the empty database, or sqlite:FOLDER')
      .option('--verify', 'compare every row, and the cost totals, with the source afterwards')
      .action((flags: MigrateFlags) =>
        finish(import('./commands/migrate.ts').then(({ migrateDatabase }) => migrateDatabase(context, flags))),
      ),
  );
}
