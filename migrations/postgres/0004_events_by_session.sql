-- Turns that are asked about are the last of their sessions: their events are found by session.
DROP INDEX events_turn;
