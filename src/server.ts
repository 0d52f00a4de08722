#!/usr/bin/env node
// The `metis-server` command, which `npx metis-server` runs: `metis`, but without a command of its own it serves (17 §2).
const [first] = process.argv.slice(2);
const asks = ['-h', '--help', '-v', '--version'];
if (first === undefined || (first.startsWith('-') && !asks.includes(first))) process.argv.splice(2, 0, 'serve');
await import('./main.ts');

export {};
