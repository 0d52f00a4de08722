// Where the page is, as a hook, and going elsewhere.
import { useEffect, useState } from 'preact/hooks';
import { type Place, parsePlace } from './place.ts';

export function usePlace(): Place {
  const [hash, setHash] = useState(() => location.hash);
  useEffect(() => {
    const onChange = () => setHash(location.hash);
    addEventListener('hashchange', onChange);
    return () => removeEventListener('hashchange', onChange);
  }, []);
  return parsePlace(hash);
}

export function goTo(place: string): void {
  location.hash = place;
}
