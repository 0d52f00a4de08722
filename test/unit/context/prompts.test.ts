// The stable system text and what a worker is told (10 §2, §3).
import { describe, expect, it } from 'vitest';
import { stablePrompt } from '#core/policy/context/system-prompt.ts';
import { DELEGATED_WORKER_BLOCK, workerTaskPrompt } from '#core/policy/context/worker-brief.ts';
import type { ContextEntry } from '#protocol/delegate.ts';

const parts = { base: 'Be useful.', instructions: null, worker: false, memory: null, skills: null };

describe('stablePrompt', () => {
  it('joins persona, instructions and skills by one blank line, in this order', () => {
    expect(
      stablePrompt({
        ...parts,
        instructions: { path: 'AGENTS.md', text: 'Use tabs.\n' },
        skills: '## Available skills\n- a: b',
      }),
    ).toBe('Be useful.\n\n## Project instructions (AGENTS.md)\nUse tabs.\n\n## Available skills\n- a: b');
  });

  it('leaves out what is blank, and is null when nothing is left', () => {
    expect(stablePrompt({ ...parts, base: '  ', instructions: { path: 'AGENTS.md', text: '\n' } })).toBeNull();
    expect(stablePrompt(parts)).toBe('Be useful.');
  });

  it('has the worker block and the memory text for workers only, between instructions and skills', () => {
    const memory = '## Workspace memory (MEMORY.md)\nfact';
    const full = { ...parts, instructions: { path: 'A.md', text: 'i' }, memory, skills: 's' };
    expect(stablePrompt({ ...full, worker: true })).toBe(
      ['Be useful.', '## Project instructions (A.md)\ni', DELEGATED_WORKER_BLOCK, memory, 's'].join('\n\n'),
    );
    expect(stablePrompt({ ...full, worker: false })).not.toContain('fact');
  });
});

describe('workerTaskPrompt', () => {
  const context: ContextEntry[] = [
    { kind: 'file', label: 'src/a.ts', text: null },
    { kind: 'file_range', label: 'src/a.ts lines 40-80', text: null },
    { kind: 'inline', label: 'note', text: 'prefer maps' },
  ];

  it('gives the task once, then the context numbered in order: files as references, the rest with its text', () => {
    expect(workerTaskPrompt({ task: 'Rename foo.', context })).toBe(
      '## Task\nRename foo.\n\n## Context\n1. file src/a.ts\n\n2. file src/a.ts lines 40-80\n\n3. inline note:\nprefer maps',
    );
  });

  it('is the bare task without context', () => {
    expect(workerTaskPrompt({ task: 't', context: [] })).toBe('## Task\nt');
  });
});
