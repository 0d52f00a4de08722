-- What nodes hold open of the limits of a day: of the whole cluster's, and of each gateway key's. An allowance has no day of
-- its own, because a call is charged to the day in which it ends, and it goes with its node.
DROP TABLE day_allowances;
CREATE TABLE day_allowances (
  pool text COLLATE "C" NOT NULL,
  node_id text COLLATE "C" NOT NULL,
  open_pusd bigint NOT NULL,
  PRIMARY KEY (pool, node_id),
  FOREIGN KEY (node_id) REFERENCES nodes(id) ON DELETE CASCADE
);
