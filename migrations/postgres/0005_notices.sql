-- What receivers of webhooks are still to be told: written with the event, gone when it was told.
CREATE TABLE notices (
  receiver text COLLATE "C" NOT NULL,
  event_id text COLLATE "C" NOT NULL,
  PRIMARY KEY (receiver, event_id)
);
