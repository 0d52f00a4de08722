// The columns of a price list: one function formats each.

/** The columns that are formatted so far. */
export const FORMATTED = [];

/** @param {{name: string}} item */
export function name(item) {
  return item.name;
}

/** @param {{cents: number}} item */
export function price(item) {
  return item.cents;
}

/** @param {{stock: number}} item */
export function stock(item) {
  return item.stock;
}

/** @param {{code: string}} item */
export function code(item) {
  return item.code;
}
