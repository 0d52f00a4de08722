// Folders that searches and recursive listings leave out: dependencies, builds, caches (09 §13).

export const PRUNED_FOLDERS: readonly string[] = [
  '.git',
  '__pycache__',
  '.venv',
  'venv',
  'node_modules',
  'dist',
  'build',
  '.mypy_cache',
  '.pytest_cache',
  '.ruff_cache',
  '.tox',
  'site',
  '.next',
  '.cache',
];
