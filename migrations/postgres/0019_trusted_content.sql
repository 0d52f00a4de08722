-- The text of a trusted file, against which a changed one is compared (20 §11).
ALTER TABLE trusted_files ADD content text COLLATE "C";
