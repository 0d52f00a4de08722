-- When a turn was asked to answer with what it has, and the message that asks for it (20 §3).
ALTER TABLE turns ADD concluded_at bigint;
ALTER TABLE turns ADD conclusion_message_id text COLLATE "C";
