// The name of a row that opens what lies under it.
import { Icon } from './icon.tsx';

export function Unfold(props: { readonly name: string; readonly open: boolean; readonly onToggle: () => void }) {
  return (
    <button type="button" class="unfold" aria-expanded={props.open} title={props.name} onClick={props.onToggle}>
      <Icon name="chevron" />
      <span>{props.name}</span>
    </button>
  );
}
