// The few figures that a list of numbers comes down to.

export function median(values) {
  return percentile(values, 50);
}

/** Nearest rank; `p` in percent. */
export function percentile(values, p) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil((p / 100) * sorted.length) - 1)];
}
