// The command palette and the list of keys: views and all sessions by typing a few letters (17 §3).
import { useEffect, useId, useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { Session } from '#client/client.ts';
import { useApi } from '../data/api.ts';
import { getTitle, usePolled, useSettled } from '../data/queries.ts';
import { baseName, describeState } from '../format/format.ts';
import { isTyped } from '../parts/keys.ts';
import { Icon, type IconName } from '../parts/labels.tsx';
import { Dialog } from '../parts/panels.tsx';
import { formatPlace, goTo } from './place.ts';
import { useViews } from './views.tsx';

const FOUND = 12;
const MOST_SEARCHED = 200;
const SEARCH_MS = 10_000;

/** Ctrl-K or ⌘K and `/` open the palette, `?` the list of keys. */
export function Palette() {
  const [open, setOpen] = useState<'commands' | 'keys' | null>(null);
  useEffect(() => {
    const openByKey = (event: KeyboardEvent) => {
      const isCommand = (event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === 'k';
      const wanted = { '/': 'commands', '?': 'keys' } as const;
      const next = isCommand ? 'commands' : wanted[event.key as keyof typeof wanted];
      if (next === undefined || (!isCommand && isTyped(event))) return;
      if (document.querySelector('dialog[open]') !== null) return;
      event.preventDefault();
      setOpen(next);
    };
    document.addEventListener('keydown', openByKey);
    return () => document.removeEventListener('keydown', openByKey);
  }, []);
  const close = () => setOpen(null);
  if (open === 'commands') return <Commands onClose={close} />;
  if (open === 'keys') return <Keys onClose={close} />;
  return null;
}

interface Command {
  readonly id: string;
  readonly icon: IconName;
  readonly label: string;
  readonly hint: string;
  readonly place: string;
}

function Commands({ onClose }: { readonly onClose: () => void }) {
  const [text, setText] = useState('');
  const [at, setAt] = useState(0);
  const id = useId();
  const field = useRef<HTMLInputElement>(null);
  // After the dialog is shown, and before the next key arrives.
  useLayoutEffect(() => field.current?.focus(), []);
  const commands = useCommands(text);
  const chosen = commands[Math.min(at, commands.length - 1)];
  const run = (command: Command | undefined) => {
    if (command === undefined) return;
    onClose();
    goTo(command.place);
  };
  const moveByKey = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === 'Enter') run(chosen);
    if (step !== undefined) setAt(Math.max(0, Math.min(commands.length - 1, at + step)));
    if (step !== undefined || event.key === 'Enter') event.preventDefault();
  };
  return (
    <Dialog title="Go to" onClose={onClose}>
      <div class="palette">
        <input
          role="combobox"
          aria-label="Search views and sessions"
          aria-expanded="true"
          aria-controls={id}
          aria-activedescendant={chosen && `${id}-${chosen.id}`}
          aria-autocomplete="list"
          placeholder="A view, or the title, id, workspace, worker or client of a session"
          maxLength={MOST_SEARCHED}
          spellcheck={false}
          value={text}
          onInput={(event) => {
            setText(event.currentTarget.value);
            setAt(0);
          }}
          onKeyDown={moveByKey}
          ref={field}
        />
        <div class="palette-list" id={id} role="listbox" aria-label="Results" tabIndex={-1}>
          {commands.map((command) => (
            <div
              key={command.id}
              id={`${id}-${command.id}`}
              role="option"
              tabIndex={-1}
              aria-selected={command === chosen}
              onClick={() => run(command)}
              onKeyDown={() => undefined}
              ref={(option) => {
                if (command === chosen) option?.scrollIntoView({ block: 'nearest' });
              }}
            >
              <Icon name={command.icon} />
              <span class="palette-label">{command.label}</span>
              <span class="palette-hint">{command.hint}</span>
            </div>
          ))}
        </div>
        {commands.length === 0 && (
          <p class="quiet" role="status">
            Nothing matches. Views and sessions appear here by a part of their title, id, workspace, worker or client.
          </p>
        )}
      </div>
    </Dialog>
  );
}

function useCommands(text: string): readonly Command[] {
  const { client } = useApi();
  const q = useSettled(text).trim();
  const { data } = usePolled(
    (signal) => client.listSessions({ limit: FOUND, include_workers: q !== '', ...(q !== '' && { q }) }, { signal }),
    `palette ${q}`,
    SEARCH_MS,
  );
  const sought = text.trim().toLowerCase();
  const views = useViews()
    .filter(({ title }) => title.toLowerCase().includes(sought))
    .map(({ id, icon, title }): Command => ({ id, icon, label: title, hint: 'view', place: formatPlace(id) }));
  return [...views, ...(data?.sessions ?? []).map(describeSession)];
}

function describeSession(session: Session): Command {
  return {
    id: session.id,
    icon: 'sessions',
    label: getTitle(session),
    hint: `${describeState(session)} · ${baseName(session.workspace_path)}`,
    place: formatPlace('sessions', session.id),
  };
}

const KEYS = [
  ['Ctrl K or /', 'Go to a view or a session'],
  ['?', 'Show these keys'],
  ['j, k', 'Next and previous approval or session'],
  ['a', 'Approve the selected call'],
  ['e', 'Edit the arguments of the selected call'],
  ['r', 'Reject the selected call'],
  ['Enter', 'Send the message'],
  ['Esc', 'Close a dialog or a menu'],
] as const;

function Keys({ onClose }: { readonly onClose: () => void }) {
  return (
    <Dialog title="Keys" onClose={onClose}>
      <dl class="facts dialog-body">
        {KEYS.map(([key, effect]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{effect}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
