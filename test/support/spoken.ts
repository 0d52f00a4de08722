// What a node says to PostgreSQL, read on its way through a proxy.
import { startProxy, targetOf, through } from './proxy.ts';

export interface Spoken {
  /** The address that leads through here. */
  readonly url: string;
  /** Texts of what was run so far, in the order of their arrival. */
  readonly statements: readonly string[];
  /** The same, those together for whose answers the node waits once. */
  readonly sendings: readonly (readonly string[])[];
}

const TYPE_AND_LENGTH = 5;
const LENGTH = 4;

/** Closed with the test. */
export async function listenIn(address: string): Promise<Spoken> {
  const statements: string[] = [];
  const sendings: string[][] = [];
  const proxy = await startProxy(targetOf(address), () => {
    let sending: string[] = [];
    const run = (text: string) => {
      statements.push(text);
      sending.push(text);
    };
    const end = () => {
      sendings.push(sending);
      sending = [];
    };
    return readStatements(run, end);
  });
  return { url: through(address, proxy), statements, sendings };
}

/** Takes the bytes of one connection: its first message has a length and no type. */
function readStatements(run: (text: string) => void, end: () => void): (bytes: Buffer) => void {
  const prepared = new Map<string, string>();
  let rest = Buffer.alloc(0);
  let greeted = false;
  return (bytes) => {
    rest = Buffer.concat([rest, bytes]);
    for (;;) {
      const head = greeted ? TYPE_AND_LENGTH : LENGTH;
      if (rest.length < head) return;
      const size = rest.readInt32BE(head - LENGTH) + head - LENGTH;
      if (rest.length < size) return;
      const texts = rest.toString('utf8', head, size).split('\0');
      const type = greeted ? String.fromCharCode(rest[0]!) : '';
      greeted = true;
      rest = rest.subarray(size);
      if (type === 'Q') run(texts[0]!);
      else if (type === 'P') prepared.set(texts[0]!, texts[1]!);
      // First the name of the portal.
      else if (type === 'B') run(prepared.get(texts[1]!) ?? '');
      if (type === 'Q' || type === 'S') end();
    }
  };
}
