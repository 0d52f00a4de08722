// Price versions that were ever active, as they were stored before the first cost was stamped with them (08 §3).

export interface PriceVersionRecord {
  readonly version: string;
  readonly content_hash: string;
  readonly source: string;
  /** The resolved entries by model id. */
  readonly models_json: string;
  /** Unix milliseconds. */
  readonly created_at: number;
}

export interface PriceVersions {
  get(version: string): Promise<PriceVersionRecord | null>;
  /** Newest first, without their entries. */
  list(): Promise<readonly Omit<PriceVersionRecord, 'models_json'>[]>;
}
