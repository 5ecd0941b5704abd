-- The last version of each stream, and whether it takes more: open, archived or deleted. What is up to `base` was deleted.
CREATE TABLE posthouse_stream (
    tenant TEXT NOT NULL,
    aggregate TEXT NOT NULL,
    stream TEXT NOT NULL,
    version INTEGER NOT NULL,
    base INTEGER NOT NULL DEFAULT 0,
    state TEXT NOT NULL DEFAULT 'open',
    PRIMARY KEY (tenant, aggregate, stream)
) WITHOUT ROWID;

-- What happened. AUTOINCREMENT: positions follow commits, as there is one writer, and none is used twice.
CREATE TABLE posthouse_stream_event (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    aggregate TEXT NOT NULL,
    stream TEXT NOT NULL,
    version INTEGER NOT NULL,
    event_id TEXT NOT NULL,
    type TEXT NOT NULL,
    headers TEXT,
    body BLOB NOT NULL,
    UNIQUE (tenant, aggregate, stream, version)
);

-- What happened in streams that were archived: the same rows, out of the way.
CREATE TABLE posthouse_stream_archive (
    position INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    aggregate TEXT NOT NULL,
    stream TEXT NOT NULL,
    version INTEGER NOT NULL,
    event_id TEXT NOT NULL,
    type TEXT NOT NULL,
    headers TEXT,
    body BLOB NOT NULL,
    UNIQUE (tenant, aggregate, stream, version)
);

-- What streams came to, as a cache: one for each.
CREATE TABLE posthouse_snapshot (
    tenant TEXT NOT NULL,
    aggregate TEXT NOT NULL,
    stream TEXT NOT NULL,
    version INTEGER NOT NULL,
    shape TEXT NOT NULL,
    state BLOB NOT NULL,
    PRIMARY KEY (tenant, aggregate, stream)
) WITHOUT ROWID;
