// The result of a case as JUnit's XML, which CI servers read (21 §3).

export interface Check {
  readonly name: string;
  /** Why it does not hold; null = it holds. */
  readonly failure: string | null;
}

export interface JunitResult {
  readonly checks: readonly Check[];
  /** Why the case could not run; null = it ran. */
  readonly error: string | null;
}

/** JUnit's XML. @param seconds of the whole run */
export function formatJunit(suite: string, { checks, error }: JunitResult, seconds: number): string {
  const failed = checks.filter(({ failure }) => failure !== null).length;
  const addCase = (name: string, kind: 'failure' | 'error', text: string | null) => {
    const open = `    <testcase classname="${escapeXml(suite)}" name="${escapeXml(name)}" time="0"`;
    if (text === null) return `${open}/>`;
    const message = escapeXml(text.split('\n', 1)[0] ?? '');
    return `${open}>\n      <${kind} message="${message}">${escapeXml(text)}</${kind}>\n    </testcase>`;
  };
  const cases = checks.map(({ name, failure }) => addCase(name, 'failure', failure));
  if (error !== null) cases.push(addCase('run', 'error', error));
  const errors = error === null ? 0 : 1;
  const counts = `tests="${cases.length}" failures="${failed}" errors="${errors}" time="${seconds.toFixed(3)}"`;
  return [
    '<?xml version="1.0" encoding="UTF-8"?>',
    `<testsuites ${counts}>`,
    `  <testsuite name="${escapeXml(suite)}" ${counts}>`,
    ...cases,
    '  </testsuite>',
    '</testsuites>',
    '',
  ].join('\n');
}

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&apos;',
};

/** Characters that XML 1.0 cannot hold become U+FFFD; line ends stay what they are in attributes too. */
function escapeXml(text: string): string {
  return text
    .replace(/[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu, '\ufffd')
    .replace(/[&<>"']/g, (character) => ENTITIES[character] ?? character);
}
