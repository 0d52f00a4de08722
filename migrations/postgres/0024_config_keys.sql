-- A hash of each configuration key, so that nodes name the keys in which they differ (16 §7.5).
ALTER TABLE nodes ADD config_keys text COLLATE "C" NOT NULL DEFAULT '{}';
