// Whether the page is as narrow as a telephone, for the few things that style sheets cannot decide.
import { useEffect, useState } from 'preact/hooks';

const NARROW = '(max-width: 759px)';

export function useNarrow(): boolean {
  const [narrow, setNarrow] = useState(() => matchMedia(NARROW).matches);
  useEffect(() => {
    const query = matchMedia(NARROW);
    const onChange = () => setNarrow(query.matches);
    query.addEventListener('change', onChange);
    return () => query.removeEventListener('change', onChange);
  }, []);
  return narrow;
}
