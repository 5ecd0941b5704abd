-- Who used which version of an event, first and last.
CREATE TABLE posthouse_version_usage (
    role TEXT NOT NULL,
    party TEXT NOT NULL,
    subject TEXT NOT NULL,
    first_at REAL NOT NULL,
    last_at REAL NOT NULL,
    PRIMARY KEY (role, party, subject)
) WITHOUT ROWID;
