// The part of an address that a title becomes.

/**
 * Letters and digits in lower case, and a dash for everything between them.
 * @param {string} title
 */
export function slug(title) {
  let out = '';
  let gap = false;
  for (const letter of title.toLowerCase()) {
    const keeps = (letter >= 'a' && letter <= 'z') || (letter >= '0' && letter <= '9');
    if (!keeps) {
      gap = out !== '';
      continue;
    }
    if (gap) out += '-';
    gap = false;
    out += letter;
  }
  return out;
}
