// A file of a workspace whose very bytes a person has trusted (20 §11).

/** A file as it was read. */
export interface FileDigest {
  /** Relative to the workspace. */
  readonly path: string;
  readonly sha256: string;
}

export interface TrustedFile extends FileDigest {
  readonly workspace_path: string;
  /** `user` until callers have names. */
  readonly trusted_by: string;
  /** Unix milliseconds. */
  readonly trusted_at: number;
}
