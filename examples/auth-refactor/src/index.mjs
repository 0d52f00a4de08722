// The login module: one function per provider.

/** @typedef {{ email: string, token: string, expires_at: number }} LoginInput */
/** @typedef {{ provider: string, subject: string, scopes: string[] }} Identity */

import { loginWithGitHub } from './github.mjs';
import { loginWithGitLab } from './gitlab.mjs';
import { loginWithGoogle } from './google.mjs';

export const providers = { google: loginWithGoogle, github: loginWithGitHub, gitlab: loginWithGitLab };
