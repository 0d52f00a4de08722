// How large a message of an MCP server may be: it is a stranger's text, checked before it is parsed (09 §11).
import type { Limits } from '#core/policy/parsing/limits.ts';

/** Room for the largest image a tool may answer with, in base64. */
export const MESSAGE: Limits = { bytes: 8_388_608, depth: 100, nodes: 200_000 };

/** Why a connection can be used no longer, as the end of a sentence that begins with the server's name. */
export type OnFault = (reason: string) => void;
