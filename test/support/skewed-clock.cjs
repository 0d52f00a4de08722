// Loaded before a server: its clock is wrong by so many milliseconds.
const skew = Number(process.env.CLOCK_SKEW_MS);
const now = Date.now;
Date.now = () => now() + skew;
