-- Pages of learned patterns, the newest first.
CREATE INDEX pattern_fingerprints_newest ON pattern_fingerprints (workspace_path, id);
