// What a row is held against. A measure gives one with its row: `{ row, ..., limit: atMost(50) }`.

const FIGURES = {
  own: ({ metis }) => metis,
  ratio: ({ ratio }) => ratio,
  above: ({ metis, relay }) => metis - relay,
};

/** The server's own figure, in the unit of the row. */
export const atMost = (bound) => ({ of: 'own', most: bound });
export const atLeast = (bound) => ({ of: 'own', least: bound });
/** The server's figure over the other side's. */
export const ratioAtMost = (bound) => ({ of: 'ratio', most: bound });
export const ratioAtLeast = (bound) => ({ of: 'ratio', least: bound });
/** The server's figure less the other side's, in the unit of the row. */
export const aboveAtMost = (bound) => ({ of: 'above', most: bound });

/** The limit of a reported row with the figure that is held against it. */
export function judge(limit, row) {
  const figure = FIGURES[limit.of](row);
  const met = limit.most === undefined ? figure >= limit.least : figure <= limit.most;
  return { ...limit, figure, met };
}

export function describe({ of, most, least }, unit) {
  const bound = most === undefined ? `≥ ${least}` : `≤ ${most}`;
  return { own: `${bound} ${unit}`.trimEnd(), ratio: `ratio ${bound}`, above: `relay + ${most} ${unit}` }[of];
}
