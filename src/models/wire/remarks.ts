// What a codec has to say beside its result: a wire that does not fit, a block that cannot be said. A logger fits.

type Remark = (fields: Readonly<Record<string, unknown>>, message: string) => void;

export interface Remarks {
  readonly debug: Remark;
  readonly warn: Remark;
}
