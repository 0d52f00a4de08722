// A button with a list of choices, by pointer and by arrow keys.
import { useId, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { Icon } from './labels.tsx';

export interface Choice {
  readonly value: string;
  readonly label: string;
  /** A small text beside the label. */
  readonly hint?: string | undefined;
}

/** `label` names the field; the button shows the current choice. */
export function Menu(props: {
  readonly label: string;
  readonly choices: readonly Choice[];
  readonly value: string;
  readonly onChoose: (value: string) => void;
}) {
  const [open, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const id = useId();
  const shown = props.choices.find(({ value }) => value === props.value)?.label ?? props.value;

  useLayoutEffect(() => {
    if (!open) return;
    const items = findItems(root.current);
    (items.find((item) => item.getAttribute('aria-checked') === 'true') ?? items[0])?.focus();
    const onPress = (event: PointerEvent) => {
      if (event.target instanceof Node && !root.current?.contains(event.target)) setOpen(false);
    };
    document.addEventListener('pointerdown', onPress);
    return () => document.removeEventListener('pointerdown', onPress);
  }, [open]);

  const closeList = () => {
    setOpen(false);
    button.current?.focus();
  };
  const chooseByKey = (event: KeyboardEvent) => {
    const items = findItems(root.current);
    const at = items.indexOf(document.activeElement as HTMLElement);
    const to: Partial<Record<string, number>> = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 };
    const target = to[event.key];
    if (event.key === 'Escape') closeList();
    else if (event.key === 'Tab') setOpen(false);
    else if (target !== undefined) items[(target + items.length) % items.length]?.focus();
    if (event.key === 'Escape' || target !== undefined) {
      event.preventDefault();
      event.stopPropagation();
    }
  };
  return (
    <div class="menu" ref={root}>
      <button
        type="button"
        ref={button}
        class="button"
        aria-haspopup="menu"
        aria-expanded={open}
        aria-controls={open ? id : undefined}
        onClick={() => setOpen(!open)}
      >
        <span class="menu-label">{props.label}</span>
        <span class="menu-value" title={shown}>
          {shown}
        </span>
        <Icon name="down" />
      </button>
      {open && (
        <div class="menu-list" role="menu" id={id} aria-label={props.label} tabIndex={-1} onKeyDown={chooseByKey}>
          {props.choices.map(({ value, label, hint }) => (
            <button
              type="button"
              key={value}
              role="menuitemradio"
              aria-checked={value === props.value}
              onClick={() => {
                closeList();
                props.onChoose(value);
              }}
            >
              <span class="menu-mark">{value === props.value && <Icon name="check" />}</span>
              <span class="menu-text">{label}</span>
              {hint && <span class="menu-hint">{hint}</span>}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}

function findItems(root: HTMLElement | null): HTMLElement[] {
  return [...(root?.querySelectorAll<HTMLElement>('[role=menuitemradio]') ?? [])];
}

// Where a person writes a limit of money, as the server takes it (14 §1).

/** The content of the field as the server expects it; null for an empty one. */
export function parseCap(text: string): string | null {
  const amount = text.trim().replace(/^\$/, '');
  if (amount === '') return null;
  return amount;
}

export function CapField(props: {
  readonly id: string;
  readonly value: string;
  readonly onValue: (value: string) => void;
  readonly placeholder?: string;
  readonly required?: boolean;
}) {
  return (
    <input
      id={props.id}
      inputMode="decimal"
      placeholder={props.placeholder}
      required={props.required}
      pattern="\s*\$?[0-9]{1,6}(\.[0-9]{1,6})?\s*"
      title="Enter a decimal number such as 0.50, with at most six digits after the point."
      value={props.value}
      onInput={(event) => props.onValue(event.currentTarget.value)}
    />
  );
}
