// Login with a GitHub account.

/**
 * @param {import('./index.mjs').LoginInput} input
 * @param {number} now Unix seconds
 * @returns {import('./index.mjs').Identity}
 */
export function loginWithGitHub(input, now) {
  if (typeof input.email !== 'string' || input.email.trim() === '') {
    throw new TypeError('email is required');
  }
  const email = input.email.trim().toLowerCase();
  if (!/^[^@\s]+@[^@\s]+\.[^@\s]+$/.test(email)) {
    throw new TypeError('email is not valid');
  }
  if (typeof input.token !== 'string' || input.token.length < 16) {
    throw new TypeError('token is too short');
  }
  if (!Number.isInteger(input.expires_at) || input.expires_at <= now) {
    throw new RangeError('token has expired');
  }
  return { provider: 'github', subject: `github:${email}`, scopes: ['read:user', 'user:email'] };
}
