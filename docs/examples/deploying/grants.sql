-- As the owner, after the tables of the store and the log were made, and again after an upgrade.
GRANT USAGE ON SCHEMA posthouse, posthouse_log TO web;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA posthouse, posthouse_log TO web;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA posthouse, posthouse_log TO web;
