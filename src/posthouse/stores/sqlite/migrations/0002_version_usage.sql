-- Who used which version of an event, first and last.
CREATE TABLE posthouse_version_usage (
    role TEXT NOT NULL,
    party TEXT NOT NULL,
    subject TEXT NOT NULL,
    first_at REAL NOT NULL,
    last_at REAL NOT NULL,
    PRIMARY KEY (role, party, subject)
) WITHOUT ROWID;

-- Who runs: one row for each start of a process, until a day after its last sign of life.
CREATE TABLE posthouse_worker (
    id TEXT PRIMARY KEY,
    services TEXT NOT NULL,
    name TEXT NOT NULL,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    version TEXT NOT NULL,
    "commit" TEXT NOT NULL,
    parts TEXT NOT NULL,
    consumers TEXT NOT NULL,
    releases TEXT NOT NULL,
    aside TEXT NOT NULL,
    started_at REAL NOT NULL,
    seen_at REAL NOT NULL,
    stopped INTEGER NOT NULL,
    figures BLOB NOT NULL
);

-- What operators did, and why; added with the act itself. What does not apply is empty.
CREATE TABLE posthouse_action (
    id TEXT PRIMARY KEY,
    at REAL NOT NULL,
    by TEXT NOT NULL,
    why TEXT NOT NULL,
    verb TEXT NOT NULL,
    service TEXT NOT NULL,
    consumer TEXT NOT NULL,
    topic TEXT NOT NULL,
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    event_id TEXT NOT NULL,
    target TEXT NOT NULL,
    changed TEXT NOT NULL,
    count INTEGER NOT NULL,
    outcome TEXT NOT NULL
) WITHOUT ROWID;

CREATE INDEX posthouse_action_at ON posthouse_action (at);

-- What operators asked to be done to many things, one after the other.
CREATE TABLE posthouse_job (
    id TEXT PRIMARY KEY,
    service TEXT NOT NULL,
    act TEXT NOT NULL,
    frozen BLOB NOT NULL,
    state TEXT NOT NULL,
    position INTEGER NOT NULL,
    done INTEGER NOT NULL,
    refused INTEGER NOT NULL,
    applied INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    open BLOB NOT NULL,
    canary_passed INTEGER NOT NULL,
    note TEXT NOT NULL,
    holder TEXT NOT NULL,
    token INTEGER NOT NULL,
    leased_until REAL NOT NULL,
    created_at REAL NOT NULL,
    changed_at REAL NOT NULL,
    ended_at REAL
) WITHOUT ROWID;

CREATE INDEX posthouse_job_running ON posthouse_job (id) WHERE state = 'running';
CREATE INDEX posthouse_job_ended ON posthouse_job (ended_at) WHERE ended_at IS NOT NULL;
