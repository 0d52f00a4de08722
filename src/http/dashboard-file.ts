// A file of the built dashboard, as it is handed to the server that answers with it (17 §3).

/** A file of the built dashboard. */
export interface DashboardFile {
  /** `/`, or `/assets/…` with a hash of its content in the name. */
  readonly path: string;
  readonly mediaType: string;
  readonly body: Buffer;
  /** Strong, quotes included. */
  readonly etag: string;
}
