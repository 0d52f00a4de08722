// A certificate of its own authority, for servers of a test that speak TLS.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';

export interface Certificate {
  /** Files in the folder. */
  readonly authority: string;
  readonly certificate: string;
  readonly key: string;
}

/**
 * Makes an authority, and a certificate that it signed, in `folder`.
 * @param names as OpenSSL takes them: `DNS:localhost,IP:127.0.0.1`
 */
export function makeCertificate(folder: string, names: string): Certificate {
  const at = (file: string) => path.join(folder, file);
  const openssl = (...args: string[]) => execFileSync('openssl', args, { cwd: folder, stdio: 'pipe' });
  const fresh = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];
  openssl('req', '-x509', ...fresh, '-keyout', 'ca.key', '-out', 'ca.pem', '-subj', '/CN=own authority', '-days', '2');
  openssl('req', ...fresh, '-keyout', 'own.key', '-out', 'own.csr', '-subj', '/CN=own server');
  fs.writeFileSync(at('names'), `subjectAltName=${names}\n`);
  const signed = ['-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial', '-extfile', 'names', '-days', '2'];
  openssl('x509', '-req', '-in', 'own.csr', '-out', 'own.pem', ...signed);
  return { authority: at('ca.pem'), certificate: at('own.pem'), key: at('own.key') };
}
