// A fault of a definition by its key path, before it is known where that stands.
export interface Fault {
  readonly path: readonly PropertyKey[];
  readonly message: string;
}
