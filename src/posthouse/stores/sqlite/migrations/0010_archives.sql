-- Archives: where each is, and how far the log beside its files was read.
CREATE TABLE posthouse_archive (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    place TEXT NOT NULL,
    generation INTEGER NOT NULL
);

-- What is about to be written to an archive, or was; a plan that was given up is deleted.
CREATE TABLE posthouse_archive_plan (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    archive INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('planned', 'done')),
    owner TEXT NOT NULL,
    objects BLOB NOT NULL,
    events INTEGER NOT NULL,
    leased_until REAL NOT NULL,
    created_at REAL NOT NULL,
    done_at REAL
);

CREATE INDEX posthouse_archive_plan_open ON posthouse_archive_plan (archive, number) WHERE state = 'planned';
CREATE INDEX posthouse_archive_plan_done ON posthouse_archive_plan (archive, done_at) WHERE done_at IS NOT NULL;

-- Which events are planned or archived, for as long as the same one may come again.
CREATE TABLE posthouse_archive_event (
    archive INTEGER NOT NULL,
    digest BLOB NOT NULL,
    plan INTEGER NOT NULL,
    PRIMARY KEY (archive, digest)
) WITHOUT ROWID;

CREATE INDEX posthouse_archive_event_plan ON posthouse_archive_event (plan);
