-- The generations of read models. `owner` fills one that is being built, until a time.
CREATE TABLE posthouse_generation (
    projection TEXT NOT NULL,
    number INTEGER NOT NULL,
    version INTEGER NOT NULL,
    state TEXT NOT NULL,
    source TEXT NOT NULL,
    phase TEXT NOT NULL,
    tables TEXT NOT NULL,
    cursor TEXT NOT NULL,
    read INTEGER NOT NULL,
    owner TEXT NOT NULL,
    until REAL NOT NULL,
    made_at REAL NOT NULL,
    live_at REAL NOT NULL,
    retired_at REAL NOT NULL,
    drop_at REAL,
    event_at REAL NOT NULL,
    applied_at REAL NOT NULL,
    history TEXT NOT NULL DEFAULT 'unknown',
    effects TEXT NOT NULL DEFAULT '[]',
    PRIMARY KEY (projection, number)
) WITHOUT ROWID;

-- The last number that a generation got: none is given twice.
CREATE TABLE posthouse_generation_number (
    projection TEXT PRIMARY KEY,
    last INTEGER NOT NULL
) WITHOUT ROWID;

-- One that is read and one that is being built, at most.
CREATE UNIQUE INDEX posthouse_generation_state ON posthouse_generation (projection, state) WHERE state <> 'retired';

-- What read models say of events: said once for each event, whichever generation applies it (number 0). What a
-- generation that is being built would have said before any live one did stands beside it, for the swap: `facts`.
CREATE TABLE posthouse_effect (
    position INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    projection TEXT NOT NULL,
    event_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    noted_at REAL NOT NULL,
    facts TEXT,
    UNIQUE (tenant, projection, event_id, number)
);

CREATE INDEX posthouse_effect_noted_at ON posthouse_effect (noted_at);

CREATE INDEX posthouse_effect_left ON posthouse_effect (projection, number) WHERE number > 0;

-- Up to which version each stream was read in bulk: what comes again from the broker is known by it.
CREATE TABLE posthouse_overlap (
    projection TEXT NOT NULL,
    number INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    aggregate TEXT NOT NULL,
    stream TEXT NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (projection, number, tenant, aggregate, stream)
) WITHOUT ROWID;
