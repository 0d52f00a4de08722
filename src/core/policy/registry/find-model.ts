// A model by the name that a caller types: id, alias or bare name, in any case (03 §2).
import { AppError } from '#protocol/errors.ts';
import type { ModelEntry } from '#protocol/model.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import { EffortSchema } from '#protocol/scalars.ts';
import { cutText, MAX_SHOWN, shownName } from '../cut.ts';
import { listEfforts } from './model-efforts.ts';
import type { ModelRegistry } from './model-registry.ts';

type Names = Pick<ModelRegistry, 'models' | 'get' | 'resolveAlias' | 'findReference' | 'isConfigured'>;

const MAX_SUGGESTIONS = 3;
/** Names longer than this are not compared with known names. */
const MAX_COMPARED = 60;

/**
 * An id or alias as it is registered, else the one model that bears the name in any case, models that can be used
 * first. Error: a sentence with the models that share the name or have a similar one.
 */
export function findModel(registry: Names, name: string): Result<string, string> {
  return findByName(registry, name) ?? findWithEffort(registry, name) ?? err(describeUnknownModel(registry, name));
}

/** Null where no model bears the name. */
function findByName(registry: Names, name: string): Result<string, string> | null {
  const exact = registry.resolveAlias(name);
  if (exact !== null) return ok(exact);
  const wanted = name.toLowerCase();
  for (const names of [listNames, listLastParts]) {
    const found = registry.models.filter((model) => names(model).includes(wanted));
    const usable = found.filter(({ id }) => registry.isConfigured(id));
    const [first, ...others] = usable.length > 0 ? usable : found;
    if (first === undefined) continue;
    if (others.length === 0) return ok(first.id);
    const ids = [first, ...others].map(({ id }) => id).join(' and ');
    return err(`${shownName(name)} is the name of several models: ${ids}; name one by its id`);
  }
  return null;
}

/** The model of a name that ends in an effort; null where it does not (22 §1). */
function findWithEffort(registry: Names, name: string): Result<string, string> | null {
  const parts = splitEffort(name);
  const found = parts === null ? null : findByName(registry, parts.model);
  if (parts === null || !found?.ok || registry.findReference(found.value)?.effort !== null) return null;
  const reference = registry.resolveAlias(`${found.value}:${parts.effort.toLowerCase()}`);
  if (reference !== null) return ok(reference);
  const missing = describeMissingEffort(registry, found.value, parts.effort);
  if (missing === null) return null;
  return err(`${shownName(name)}: ${missing}`);
}

function splitEffort(name: string): { readonly model: string; readonly effort: string } | null {
  const at = name.lastIndexOf(':');
  if (at <= 0 || at === name.length - 1) return null;
  return { model: name.slice(0, at), effort: name.slice(at + 1) };
}

/** Null where the word is no effort at all and the model has none. */
function describeMissingEffort(registry: Names, id: string, word: string): string | null {
  const model = registry.get(id);
  if (model === null) return null;
  const efforts = listEfforts(model, null);
  if (efforts.length > 0) return `${id} has no effort ${shownName(word)}; it has ${efforts.join(', ')}`;
  if (!EffortSchema.safeParse(word.toLowerCase()).success) return null;
  return `${id} has no effort ${shownName(word)}; it has none at all`;
}

/** A model as a caller names it. Error: `model_not_configured` (400). */
export function modelInput(registry: Names, name: string): Result<string, AppError> {
  const found = findModel(registry, name);
  if (found.ok) return found;
  return err(new AppError('model_not_configured', found.error, { input: cutText(name, MAX_SHOWN) }));
}

/** The error text for the name of a model that is not registered, or of an effort that its model lacks. */
export function describeUnknownModel(registry: Names, name: string): string {
  const parts = splitEffort(name);
  const known = parts === null ? null : registry.findReference(parts.model);
  const missing =
    parts === null || known?.effort !== null ? null : describeMissingEffort(registry, known.id, parts.effort);
  if (missing !== null) return `${shownName(name)}: ${missing}`;
  const text = `${shownName(name)} is neither a model id nor an alias of this server`;
  const similar = listSimilar(registry, name.toLowerCase());
  if (similar.length === 0) return text;
  return `${text}; did you mean ${similar.join(' or ')}?`;
}

function listNames({ id, aliases, wire_name }: ModelEntry): string[] {
  return [id, wire_name, id.slice(id.indexOf(':') + 1), ...aliases].map((name) => name.toLowerCase());
}

/** `claude-opus-5` of `anthropic/claude-opus-5`. */
function listLastParts(model: ModelEntry): string[] {
  return listNames(model).map((name) => name.slice(name.lastIndexOf('/') + 1));
}

/** Ids of the most similar models, those that can be used before all others. */
function listSimilar(registry: Names, wanted: string): string[] {
  if (wanted.length > MAX_COMPARED || wanted.length < 2) return [];
  const limit = Math.max(1, Math.floor(wanted.length / 3));
  const near = registry.models
    .map((model) => {
      const names = [...listNames(model), ...listLastParts(model)];
      const distance = Math.min(...names.map((name) => countEdits(wanted, name)));
      return { id: model.id, distance, usable: registry.isConfigured(model.id) };
    })
    .filter(({ distance }) => distance <= limit);
  const usable = near.filter((model) => model.usable);
  const offered = usable.length > 0 ? usable : near;
  return offered
    .sort((a, b) => a.distance - b.distance)
    .slice(0, MAX_SUGGESTIONS)
    .map(({ id }) => id);
}

/** Characters to insert, remove or replace to get from one text to the other. */
function countEdits(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, i) => i);
  for (const [i, char] of [...from].entries()) {
    const next = [i + 1];
    for (let at = 1; at <= to.length; at++) {
      const replaced = row[at - 1]! + Number(char !== to[at - 1]);
      next.push(Math.min(replaced, row[at]! + 1, next[at - 1]! + 1));
    }
    row = next;
  }
  return row.at(-1)!;
}
