// Whether a text that arrives in pieces is one whole JSON object by now, each character looked at once (11.6).

export interface ObjectScan {
  feed(piece: string): void;
  /** The braces that were opened are closed, and nothing but white space stands around them. */
  balanced(): boolean;
}

export function createObjectScan(): ObjectScan {
  let depth = 0;
  let inString = false;
  let escaped = false;
  let state: 'before' | 'inside' | 'whole' | 'spoiled' = 'before';

  function step(code: number): void {
    if (inString) {
      if (escaped) escaped = false;
      else if (code === 0x5c) escaped = true;
      else if (code === 0x22) inString = false;
    } else if (code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09) {
      return;
    } else if (state === 'before') {
      state = code === 0x7b ? 'inside' : 'spoiled';
      depth = 1;
    } else if (state === 'whole') state = 'spoiled';
    else if (code === 0x22) inString = true;
    else if (code === 0x7b || code === 0x5b) depth++;
    else if ((code === 0x7d || code === 0x5d) && --depth === 0) state = 'whole';
  }

  return {
    feed(piece) {
      for (let at = 0; at < piece.length && state !== 'spoiled'; at++) step(piece.charCodeAt(at));
    },
    balanced: () => state === 'whole',
  };
}
