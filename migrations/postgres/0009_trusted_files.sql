CREATE TABLE trusted_files (
  workspace_path text COLLATE "C" NOT NULL,
  path text COLLATE "C" NOT NULL,
  sha256 text COLLATE "C" NOT NULL,
  trusted_by text COLLATE "C" NOT NULL,
  trusted_at bigint NOT NULL,
  PRIMARY KEY (workspace_path, path)
);
