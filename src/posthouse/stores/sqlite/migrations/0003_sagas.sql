-- Sagas: where each stands.
CREATE TABLE posthouse_saga (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    saga TEXT NOT NULL,
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    status TEXT NOT NULL,
    turn INTEGER NOT NULL,
    reason TEXT NOT NULL,
    started_at REAL NOT NULL,
    changed_at REAL NOT NULL,
    ended_at REAL,
    progress TEXT NOT NULL,
    state BLOB NOT NULL,
    UNIQUE (saga, tenant, id)
);

-- For counting, and for those that wait for an operator.
CREATE INDEX posthouse_saga_status ON posthouse_saga (saga, status);

-- For forgetting those that ended.
CREATE INDEX posthouse_saga_ended ON posthouse_saga (ended_at) WHERE ended_at IS NOT NULL;

-- The history of each: one record per turn, as JSON.
CREATE TABLE posthouse_saga_turn (
    number INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    record BLOB NOT NULL,
    PRIMARY KEY (number, turn)
) WITHOUT ROWID;
