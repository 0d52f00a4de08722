// Where a person writes a limit of money, as the server takes it (14 §1).

/** What stands in the field as the server wants it; null for an empty one. */
export function capOf(text: string): string | null {
  const amount = text.trim().replace(/^\$/, '');
  return amount === '' ? null : amount;
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
      title="a decimal number such as 0.50, with six digits after the point at most"
      value={props.value}
      onInput={(event) => props.onValue(event.currentTarget.value)}
    />
  );
}
