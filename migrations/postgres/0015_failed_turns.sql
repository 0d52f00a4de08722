-- The list of failed sessions begins at failed turns (05 §3.1).
CREATE INDEX turns_failed ON turns (session_id) WHERE status = 'failed';
