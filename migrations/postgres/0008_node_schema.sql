-- The newest schema that a node knows: a migration that breaks older nodes waits for their end. NULL = a node of a
-- version before this column.
ALTER TABLE nodes ADD COLUMN schema_version bigint;
