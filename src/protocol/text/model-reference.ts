// A model with its effort, in the form that a person writes (22 §1).
import type { Effort } from '../scalars.ts';

export function nameReference(model: string, effort: Effort | null | undefined): string {
  if (effort == null || model === '') return model;
  return `${model}:${effort}`;
}
