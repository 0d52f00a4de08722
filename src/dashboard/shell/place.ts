// An address of the page: the part behind `#`, since paths without it are the HTTP interface's own.
import { useEffect, useState } from 'preact/hooks';

export interface Place {
  /** `sessions`, `cost`, … */
  readonly view: string;
  /** What follows it, decoded: the id of a session. */
  readonly rest: readonly string[];
  readonly query: URLSearchParams;
}

/** `#/sessions/ID?tab=timeline` */
export function parsePlace(hash: string): Place {
  const place = hash.replace(/^#?\/?/, '');
  const [path = ''] = place.split('?', 1);
  const [view = '', ...rest] = path.split('/').map(decodePart);
  return { view, rest, query: new URLSearchParams(place.slice(path.length)) };
}

export function formatPlace(view: string, ...rest: readonly string[]): string {
  return `#/${[view, ...rest].map(encodeURIComponent).join('/')}`;
}

/** `#/cost?range=30d`: empty values are left out, so that an address holds only what was chosen. */
export function formatPlaceWithQuery(view: string, query: Readonly<Record<string, string | null>>): string {
  const chosen = Object.entries(query).filter((entry): entry is [string, string] => entry[1] !== null);
  if (chosen.length === 0) return formatPlace(view);
  return `${formatPlace(view)}?${new URLSearchParams(chosen)}`;
}

function decodePart(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

// Where the page is, at once and as a hook, and going elsewhere.

/** The address of this moment. What was drawn may be of the one before, until the browser has reported the change. */
export function readPlace(): Place {
  return parsePlace(location.hash);
}

export function usePlace(): Place {
  const [hash, setHash] = useState(() => location.hash);
  useEffect(() => {
    const updateHash = () => setHash(location.hash);
    addEventListener('hashchange', updateHash);
    return () => removeEventListener('hashchange', updateHash);
  }, []);
  return parsePlace(hash);
}

export function goTo(place: string): void {
  location.hash = place;
}

/** Without a step in the browser's history: for what changes with each letter. */
export function replacePlace(place: string): void {
  location.replace(place);
}
