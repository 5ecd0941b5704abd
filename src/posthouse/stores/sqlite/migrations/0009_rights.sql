-- Grants: who may replay or edit what for a while, and who else said so.
CREATE TABLE posthouse_replay_grant (
    id TEXT PRIMARY KEY,
    service TEXT NOT NULL,
    verb TEXT NOT NULL CHECK (verb IN ('replay', 'edit')),
    scope BLOB NOT NULL,
    why TEXT NOT NULL CHECK (why <> ''),
    asked_by TEXT NOT NULL CHECK (asked_by <> ''),
    asked_as TEXT NOT NULL,
    minutes INTEGER NOT NULL CHECK (minutes BETWEEN 1 AND 60),
    most INTEGER NOT NULL CHECK (most > 0),
    rate REAL NOT NULL CHECK (rate > 0),
    asked_at REAL NOT NULL,
    approved_by TEXT,
    approved_as TEXT,
    approved_at REAL,
    ends_at REAL CHECK (ends_at <= approved_at + 3600),
    revoked_by TEXT,
    revoked_at REAL,
    used INTEGER NOT NULL CHECK (used <= most),
    next_at REAL NOT NULL,
    CHECK ((approved_at IS NULL) = (ends_at IS NULL) AND (approved_at IS NULL) = (approved_by IS NULL)),
    CHECK (approved_by IS NULL OR (lower(approved_by) <> lower(asked_by) AND approved_as <> asked_as))
) WITHOUT ROWID;
