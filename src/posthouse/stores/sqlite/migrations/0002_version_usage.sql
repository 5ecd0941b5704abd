-- Who used which version of an event, first and last.
CREATE TABLE posthouse_version_usage (
    role TEXT NOT NULL,
    party TEXT NOT NULL,
    subject TEXT NOT NULL,
    first_at REAL NOT NULL,
    last_at REAL NOT NULL,
    PRIMARY KEY (role, party, subject)
) WITHOUT ROWID;

-- What running processes have timed, one row for each.
CREATE TABLE posthouse_timing (
    service TEXT NOT NULL,
    process TEXT NOT NULL,
    written_at REAL NOT NULL,
    figures BLOB NOT NULL,
    PRIMARY KEY (service, process)
) WITHOUT ROWID;
