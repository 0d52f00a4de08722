// `metis completion SHELL`: a script for the shell, made from the commands as they are declared (17 §2).
import type { Command } from 'commander';

export const SHELLS = ['bash', 'zsh', 'fish'] as const;
export type Shell = (typeof SHELLS)[number];

/** What a flag or an argument takes: names from a list, a file, a folder, or what only the person knows. */
type Takes =
  | { readonly kind: 'words'; readonly words: readonly string[] }
  | { readonly kind: 'file' | 'folder' | 'text' };

interface Word {
  readonly name: string;
  readonly about: string;
  /** Null for a switch and for a command. */
  readonly takes: Takes | null;
}

/** A place where a word is completed: behind `metis routing`, for example. */
interface Place {
  readonly at: string;
  readonly commands: readonly Word[];
  readonly flags: readonly Word[];
  readonly argument: Takes | null;
}

export function completionScript(program: Command, shell: Shell): string {
  const places = [...listPlaces(program, program.name()), ...listHelpPlaces(program)];
  return { bash: writeBash, zsh: writeZsh, fish: writeFish }[shell](places);
}

function listPlaces(command: Command, at: string): Place[] {
  const [argument] = command.registeredArguments;
  return [
    {
      at,
      commands: command.commands.map((below) => ({ name: below.name(), about: readFirstSentence(below), takes: null })),
      flags: command
        .createHelp()
        .visibleOptions(command)
        .flatMap(({ long, description, flags, argChoices }) => {
          if (!long) return [];
          return [{ name: long, about: description, takes: readValueKind(flags, argChoices) }];
        }),
      argument: argument === undefined ? null : readValueKind(`<${argument.name()}>`, argument.argChoices),
    },
    ...command.commands.flatMap((below) => listPlaces(below, `${at} ${below.name()}`)),
  ];
}

/** `metis help` takes the names of commands, as deep as they go. */
function listHelpPlaces(program: Command): Place[] {
  const listBelow = (command: Command, at: string): Place[] => [
    {
      at,
      commands: command.commands.map((one) => ({ name: one.name(), about: readFirstSentence(one), takes: null })),
      flags: [],
      argument: null,
    },
    ...command.commands
      .filter((one) => one.commands.length > 0)
      .flatMap((one) => listBelow(one, `${at} ${one.name()}`)),
  ];
  return listBelow(program, `${program.name()} help`);
}

function readFirstSentence(command: Command): string {
  return command.description().split(/[.;:]/, 1)[0]!;
}

function readValueKind(flags: string, choices: readonly string[] | undefined): Takes | null {
  if (choices) return { kind: 'words', words: choices };
  const [, value] = /[<[]([^>\]]+)[>\]]/.exec(flags) ?? [];
  if (value === undefined) return null;
  return { kind: VALUE_KINDS[value] ?? 'text' };
}
/** By the name of the value in the help; any other is a text. */
const VALUE_KINDS: Readonly<Record<string, 'file' | 'folder'>> = { dir: 'folder', file: 'file' };

/** The words of a list; none for what is not a list. */
function listWords(takes: Takes): readonly string[] {
  if (takes.kind === 'words') return takes.words;
  return [];
}

/** Every place that is one word further than another. */
function listSteps(places: readonly Place[], quote: (text: string) => string): string {
  return [...new Set(places.flatMap(({ at, commands }) => commands.map(({ name }) => `${at} ${name}`)))]
    .map(quote)
    .join('|');
}
/** The flags that take something, together with all that are answered alike. */
function listFlagsWithValue(
  places: readonly Place[],
  reply: (takes: Takes) => string,
): { readonly at: string; readonly answer: string }[] {
  const alike = new Map<string, string[]>();
  for (const { at, flags } of withoutRepeats(places))
    for (const { name, takes } of flags)
      if (takes !== null) alike.set(reply(takes), [...(alike.get(reply(takes)) ?? []), quotePosix(`${at} ${name}`)]);
  return [...alike].map(([answer, places]) => ({ at: places.join('|'), answer }));
}
/** `metis help` is declared and made again below: the later one knows more. */
function withoutRepeats(places: readonly Place[]): Place[] {
  return [...new Map(places.map((place) => [place.at, place])).values()];
}
const quotePosix = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;
const joinNames = (words: readonly Word[]) => words.map(({ name }) => name).join(' ');

function writeBash(places: readonly Place[]): string {
  const reply: Record<Takes['kind'], (takes: Takes) => string> = {
    words: (takes) => `COMPREPLY=($(compgen -W ${quotePosix(listWords(takes).join(' '))} -- "$cur"))`,
    // Nothing: `-o default` offers files.
    file: () => ':',
    folder: () => `compopt -o filenames 2>/dev/null; local IFS=$'\\n'; COMPREPLY=($(compgen -d -- "$cur"))`,
    text: () => 'compopt +o default 2>/dev/null',
  };
  const own = withoutRepeats(places).map(({ at, commands, flags, argument }) => {
    const all = `COMPREPLY=($(compgen -W ${quotePosix(`${joinNames(commands)} ${joinNames(flags)}`.trim())} -- "$cur"))`;
    const free = argument === null || argument.kind === 'text' ? all : reply[argument.kind](argument);
    return `    ${quotePosix(at)}) if [[ $cur == -* ]]; then ${all}; else ${free}; fi ;;`;
  });
  return `# metis in bash. Now: source <(metis completion bash). Always: the same line in ~/.bashrc
_metis() {
  local cur=\${COMP_WORDS[COMP_CWORD]} prev=\${COMP_WORDS[COMP_CWORD-1]} at=metis i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$at \${COMP_WORDS[i]}" in
      ${listSteps(places, quotePosix)}) at="$at \${COMP_WORDS[i]}" ;;
    esac
  done
  COMPREPLY=()
  case "$at $prev" in
${listFlagsWithValue(places, (takes) => reply[takes.kind](takes))
  .map(({ at, answer }) => `    ${at}) ${answer}; return ;;`)
  .join('\n')}
  esac
  case "$at" in
${own.join('\n')}
  esac
}
complete -o default -F _metis metis
`;
}

function writeZsh(places: readonly Place[]): string {
  const reply = (takes: Takes) =>
    ({
      words: `compadd -- ${listWords(takes).map(quotePosix).join(' ')}`,
      file: '_files',
      folder: '_files -/',
      text: '_message value',
    })[takes.kind];
  const list = (words: readonly Word[]) =>
    words.map(({ name, about }) => quotePosix(`${name.replaceAll(':', '\\:')}:${about}`)).join(' ');
  const own = withoutRepeats(places).map(({ at, commands, flags, argument }) => {
    const known = `    (${quotePosix(at)}) commands=(${list(commands)}) flags=(${list(flags)})`;
    if (argument === null || argument.kind === 'text') return `${known} ;;`;
    return `${known}; [[ $PREFIX == -* ]] || { ${reply(argument)}; return } ;;`;
  });
  return `#compdef metis
# metis in zsh. Now: source <(metis completion zsh). Always: metis completion zsh > a folder of $fpath, as _metis
_metis() {
  local at=metis i
  local -a commands flags
  for ((i = 2; i < CURRENT; i++)); do
    case "$at \${words[i]}" in
      (${listSteps(places, quotePosix)}) at="$at \${words[i]}" ;;
    esac
  done
  case "$at \${words[CURRENT-1]}" in
${listFlagsWithValue(places, reply)
  .map(({ at, answer }) => `    (${at}) ${answer}; return ;;`)
  .join('\n')}
  esac
  case "$at" in
${own.join('\n')}
  esac
  (( $#commands )) && _describe command commands
  (( $#flags )) && [[ $PREFIX == -* || $#commands -eq 0 ]] && _describe -o flag flags
}
if [[ $funcstack[1] == _metis ]]; then _metis "$@"; else compdef _metis metis; fi
`;
}

function writeFish(places: readonly Place[]): string {
  const quote = (text: string) => `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;
  const reply = (takes: Takes) =>
    ({
      words: `-x -a ${quote(listWords(takes).join(' '))}`,
      file: '-r -F',
      folder: "-x -a '(__fish_complete_directories)'",
      text: '-x',
    })[takes.kind];
  const lines = withoutRepeats(places).flatMap(({ at, commands, flags, argument }) => {
    const here = `complete -c metis -n ${quote(`__metis_at ${at}`)}`;
    const free = { words: '', file: '-F', folder: "-a '(__fish_complete_directories)'", text: '' };
    const lines = [
      ...commands.map(({ name, about }) => `${here} -a ${quote(name)} -d ${quote(about)}`),
      ...flags.map(({ name, about, takes }) => {
        const flag = `${here} -l ${name.slice(2)} -d ${quote(about)}`;
        if (takes === null) return flag;
        return `${flag} ${reply(takes)}`;
      }),
    ];
    if (argument?.kind === 'words') return [...lines, `${here} ${reply(argument).replace('-x ', '')}`];
    const given = free[argument?.kind ?? 'text'];
    if (given === '') return lines;
    return [...lines, `${here} ${given}`];
  });
  const known = listSteps(places, quote).split('|').join(' ');
  return `# metis in fish. Always: metis completion fish > ~/.config/fish/completions/metis.fish
function __metis_at
    set -l at metis
    for word in (commandline -opc)
        switch "$at $word"
            case ${known}
                set at "$at $word"
        end
    end
    test "$at" = "$argv"
end
complete -c metis -f
${lines.join('\n')}
`;
}
