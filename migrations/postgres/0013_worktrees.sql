CREATE TABLE worktrees (
  session_id text COLLATE "C" PRIMARY KEY,
  caller_path text COLLATE "C" NOT NULL,
  repository text COLLATE "C" NOT NULL,
  folder text COLLATE "C" NOT NULL,
  tree_path text COLLATE "C" NOT NULL,
  base_tree text COLLATE "C" NOT NULL,
  result_tree text COLLATE "C",
  merged_from text COLLATE "C",
  merged_tree text COLLATE "C",
  applied bigint,
  created_at bigint NOT NULL,
  CONSTRAINT worktrees_applied CHECK (applied IN (0, 1))
);
ALTER TABLE sessions ADD COLUMN tree_path text COLLATE "C";
