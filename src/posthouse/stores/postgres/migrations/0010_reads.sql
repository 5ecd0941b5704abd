-- Where a relay's rows come from, in its own words; NULL for one that was never to follow the log.
ALTER TABLE posthouse.member ADD COLUMN reads text;
