// The few figures that a list of numbers comes down to.

export function median(values) {
  return percentile(values, 50);
}

/** Nearest rank; `p` in percent. */
export function percentile(values, p) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil((p / 100) * sorted.length) - 1)];
}

/** Standard error of the median over the median of a normal distribution whose quartiles are those of the sample. */
const ERROR_OF_QUARTILES = 0.93;

/** How far the median may be off, as a part of it: the standard error by the quartiles. Null of fewer than two values. */
export function spread(values) {
  if (values.length < 2) return null;
  const width = percentile(values, 75) - percentile(values, 25);
  if (width === 0) return 0;
  return (ERROR_OF_QUARTILES * width) / Math.sqrt(values.length) / Math.abs(median(values));
}
