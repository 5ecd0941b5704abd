-- Figures of the whole store: `shards` (how many the outbox has), `lineage` (grows after a restore), `identity` (of this store) and
-- `purged` (rows of the outbox up to this one may be gone).
CREATE TABLE posthouse_meta (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;

INSERT INTO posthouse_meta (name, value)
VALUES ('lineage', 1), ('identity', random() & 9223372036854775807), ('purged', 0);

-- What goes out. AUTOINCREMENT: an id is never used twice, so a cursor never skips a row after a purge.
CREATE TABLE posthouse_outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    shard INTEGER NOT NULL,
    topic TEXT NOT NULL,
    tenant TEXT NOT NULL,
    key TEXT,
    sequence INTEGER,
    lineage INTEGER NOT NULL,
    event_id TEXT NOT NULL,
    headers TEXT,
    body BLOB NOT NULL,
    written_at REAL NOT NULL
);

-- The last number given to each key.
CREATE TABLE posthouse_key (
    topic TEXT NOT NULL,
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    PRIMARY KEY (topic, tenant, key)
) WITHOUT ROWID;

-- Intents that were said already, remembered until a time.
CREATE TABLE posthouse_idempotency (
    tenant TEXT NOT NULL,
    topic TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    event_id TEXT NOT NULL,
    until REAL NOT NULL,
    PRIMARY KEY (tenant, topic, idempotency_key)
) WITHOUT ROWID;

CREATE INDEX posthouse_idempotency_until ON posthouse_idempotency (until);

-- Shares of the outbox: who reads them, and how far the broker has accepted them.
CREATE TABLE posthouse_shard (
    number INTEGER PRIMARY KEY,
    owner TEXT,
    epoch INTEGER NOT NULL DEFAULT 0,
    until REAL NOT NULL DEFAULT 0,
    cursor INTEGER NOT NULL DEFAULT 0
);

-- Relays that are alive, with or without shards.
CREATE TABLE posthouse_member (
    owner TEXT PRIMARY KEY,
    until REAL NOT NULL
) WITHOUT ROWID;

-- Rows that the broker refused, and those of the same key behind them. The row itself stays in the outbox.
CREATE TABLE posthouse_stuck (
    id INTEGER PRIMARY KEY,
    shard INTEGER NOT NULL,
    topic TEXT NOT NULL,
    tenant TEXT NOT NULL,
    key TEXT,
    attempts INTEGER NOT NULL,
    first_at REAL NOT NULL,
    next_at REAL NOT NULL,
    error TEXT NOT NULL,
    quarantined INTEGER NOT NULL
);

CREATE INDEX posthouse_stuck_key ON posthouse_stuck (topic, tenant, key, id);

-- How old the oldest is of those that the broker may still take.
CREATE INDEX posthouse_stuck_waiting ON posthouse_stuck (topic, first_at) WHERE NOT quarantined;

-- How many rows of each topic the broker has accepted: they may be purged, the figure stays.
CREATE TABLE posthouse_sent (
    topic TEXT PRIMARY KEY,
    count INTEGER NOT NULL
) WITHOUT ROWID;

-- Up to which row the outbox was sent at a time, and how many bytes that is since the time before: rows that were sent are kept
-- for a while by it.
CREATE TABLE posthouse_passed (
    id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    bytes INTEGER NOT NULL
);

-- Whether a consumer takes the first number it sees of a key; decided at its first start.
CREATE TABLE posthouse_consumer (
    consumer TEXT NOT NULL,
    topic TEXT NOT NULL,
    adopt INTEGER NOT NULL,
    PRIMARY KEY (consumer, topic)
) WITHOUT ROWID;

-- Ordered consumers: the last event applied of each key, when the newest id of all of them was drawn (milliseconds), the
-- lineages before this one, each with its last number ('1:3 2:7 '), and how many of that key are held in a blocking state.
CREATE TABLE posthouse_head (
    consumer TEXT NOT NULL,
    topic TEXT NOT NULL,
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    lineage INTEGER NOT NULL,
    event_id TEXT NOT NULL,
    digest BLOB NOT NULL,
    newest INTEGER NOT NULL DEFAULT 0,
    lineages TEXT NOT NULL DEFAULT '',
    held INTEGER NOT NULL DEFAULT 0,
    replay TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (consumer, topic, tenant, key)
) WITHOUT ROWID;

-- The keys that a replay has closed: whoever ends its job opens them.
CREATE INDEX posthouse_head_replayed ON posthouse_head (replay) WHERE replay <> '';

-- Replays: how many events were put aside for one, once that was through.
CREATE TABLE posthouse_replay (
    job TEXT PRIMARY KEY,
    staged INTEGER NOT NULL,
    left_out INTEGER NOT NULL
) WITHOUT ROWID;

-- What a replay still has to apply.
CREATE TABLE posthouse_replay_event (
    job TEXT NOT NULL,
    topic TEXT NOT NULL,
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    lineage INTEGER NOT NULL,
    event_id TEXT NOT NULL,
    stored_at REAL NOT NULL,
    headers TEXT,
    body BLOB NOT NULL,
    again INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    error TEXT NOT NULL,
    PRIMARY KEY (job, topic, tenant, event_id)
);

CREATE INDEX posthouse_replay_event_line ON posthouse_replay_event (job, topic, tenant, key, sequence, lineage, event_id);

-- Unordered consumers: every event applied, until it is purged.
CREATE TABLE posthouse_inbox (
    consumer TEXT NOT NULL,
    tenant TEXT NOT NULL,
    event_id TEXT NOT NULL,
    topic TEXT NOT NULL,
    digest BLOB NOT NULL,
    time REAL NOT NULL,
    received_at REAL NOT NULL,
    result TEXT NOT NULL,
    PRIMARY KEY (consumer, tenant, event_id)
) WITHOUT ROWID;

CREATE INDEX posthouse_inbox_received_at ON posthouse_inbox (received_at);

-- Up to what time events may have been applied and purged.
CREATE TABLE posthouse_forgotten (
    consumer TEXT PRIMARY KEY,
    until REAL NOT NULL
) WITHOUT ROWID;

-- How many events each consumer has applied and skipped: inbox rows may be purged, the figures stay.
CREATE TABLE posthouse_applied (
    consumer TEXT NOT NULL,
    topic TEXT NOT NULL,
    applied INTEGER NOT NULL,
    skipped INTEGER NOT NULL,
    PRIMARY KEY (consumer, topic)
) WITHOUT ROWID;

-- How many events each consumer never got, as far as an operator has accepted it.
CREATE TABLE posthouse_loss (
    consumer TEXT NOT NULL,
    topic TEXT NOT NULL,
    lost INTEGER NOT NULL,
    PRIMARY KEY (consumer, topic)
) WITHOUT ROWID;

-- What could not be applied.
CREATE TABLE posthouse_held (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    consumer TEXT NOT NULL,
    topic TEXT NOT NULL,
    tenant TEXT NOT NULL,
    key TEXT,
    sequence INTEGER,
    lineage INTEGER NOT NULL,
    event_id TEXT NOT NULL,
    digest BLOB NOT NULL,
    time REAL NOT NULL,
    state TEXT NOT NULL,
    type TEXT NOT NULL,
    headers TEXT,
    body BLOB NOT NULL,
    attempts INTEGER NOT NULL,
    next_at REAL NOT NULL,
    first_at REAL NOT NULL,
    last_at REAL NOT NULL,
    reason TEXT NOT NULL,
    error TEXT NOT NULL,
    stack TEXT NOT NULL,
    turn INTEGER NOT NULL
);

-- At most one event of a number keeps its key waiting: another one with that number is a fork.
CREATE UNIQUE INDEX posthouse_held_waiting ON posthouse_held (consumer, topic, tenant, key, sequence)
    WHERE sequence IS NOT NULL AND state IN ('retrying', 'gap', 'blocked', 'dead');

CREATE UNIQUE INDEX posthouse_held_ordered ON posthouse_held (consumer, topic, tenant, key, sequence, event_id)
    WHERE sequence IS NOT NULL;

CREATE UNIQUE INDEX posthouse_held_unordered ON posthouse_held (consumer, tenant, event_id)
    WHERE sequence IS NULL;

-- For lists of some kind, and for the oldest of each kind: an index that is read in leaps from kind to kind.
CREATE INDEX posthouse_held_kind ON posthouse_held (consumer, topic, state, id);

CREATE INDEX posthouse_held_event_id ON posthouse_held (event_id);

CREATE INDEX posthouse_held_key ON posthouse_held (key) WHERE key IS NOT NULL;

CREATE INDEX posthouse_held_next_at ON posthouse_held (consumer, state, next_at);

-- Those that were given up leave when their time is over.
CREATE INDEX posthouse_held_skipped ON posthouse_held (last_at, id) WHERE state = 'skipped';

-- What is due later.
CREATE TABLE posthouse_timer (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    due_at REAL NOT NULL,
    topic TEXT NOT NULL,
    tenant TEXT NOT NULL,
    event_id TEXT NOT NULL,
    key TEXT,
    numbered INTEGER NOT NULL,
    idempotency_key TEXT,
    headers TEXT,
    body BLOB NOT NULL,
    UNIQUE (tenant, name)
);

CREATE INDEX posthouse_timer_due_at ON posthouse_timer (due_at);

-- What runs again and again. Times are seconds since 1970.
CREATE TABLE posthouse_schedule (
    service TEXT NOT NULL,
    name TEXT NOT NULL,
    expression TEXT NOT NULL,
    tz TEXT NOT NULL,
    next_at REAL NOT NULL,
    last_at REAL,
    done_at REAL,
    ended_at REAL,
    paused_at REAL,
    seen_at REAL NOT NULL,
    PRIMARY KEY (service, name)
);

-- How many there are of something that may be too many to count, kept by triggers: of kind held, stuck, timer, saga; or ended,
-- which only grows. `name` is the consumer or the saga; what does not apply is empty. A state of held ones is strange where no event
-- could be read; stuck ones are refused or waiting.
CREATE TABLE posthouse_tally (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    topic TEXT NOT NULL,
    state TEXT NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (kind, name, topic, state)
) WITHOUT ROWID;

CREATE TRIGGER posthouse_tally_held_added AFTER INSERT ON posthouse_held BEGIN
    INSERT INTO posthouse_tally (kind, name, topic, state, number) VALUES ('held', new.consumer, new.topic, iif(new.type = '' AND new.state IN ('quarantined', 'skipped'), 'strange ' || new.state, new.state), 1)
    ON CONFLICT (kind, name, topic, state) DO UPDATE SET number = number + excluded.number;
END;

CREATE TRIGGER posthouse_tally_held_gone AFTER DELETE ON posthouse_held BEGIN
    INSERT INTO posthouse_tally (kind, name, topic, state, number) VALUES ('held', old.consumer, old.topic, iif(old.type = '' AND old.state IN ('quarantined', 'skipped'), 'strange ' || old.state, old.state), -1)
    ON CONFLICT (kind, name, topic, state) DO UPDATE SET number = number + excluded.number;
END;

CREATE TRIGGER posthouse_tally_held_changed AFTER UPDATE ON posthouse_held
WHEN (old.consumer, old.topic, old.state, old.type) <> (new.consumer, new.topic, new.state, new.type) BEGIN
    INSERT INTO posthouse_tally (kind, name, topic, state, number) VALUES ('held', old.consumer, old.topic, iif(old.type = '' AND old.state IN ('quarantined', 'skipped'), 'strange ' || old.state, old.state), -1)
    ON CONFLICT (kind, name, topic, state) DO UPDATE SET number = number + excluded.number;
    INSERT INTO posthouse_tally (kind, name, topic, state, number) VALUES ('held', new.consumer, new.topic, iif(new.type = '' AND new.state IN ('quarantined', 'skipped'), 'strange ' || new.state, new.state), 1)
    ON CONFLICT (kind, name, topic, state) DO UPDATE SET number = number + excluded.number;
END;

CREATE TRIGGER posthouse_tally_stuck_added AFTER INSERT ON posthouse_stuck BEGIN
    INSERT INTO posthouse_tally (kind, name, topic, state, number) VALUES ('stuck', '', new.topic, iif(new.quarantined, 'refused', 'waiting'), 1)
    ON CONFLICT (kind, name, topic, state) DO UPDATE SET number = number + excluded.number;
END;

CREATE TRIGGER posthouse_tally_stuck_gone AFTER DELETE ON posthouse_stuck BEGIN
    INSERT INTO posthouse_tally (kind, name, topic, state, number) VALUES ('stuck', '', old.topic, iif(old.quarantined, 'refused', 'waiting'), -1)
    ON CONFLICT (kind, name, topic, state) DO UPDATE SET number = number + excluded.number;
END;

CREATE TRIGGER posthouse_tally_stuck_changed AFTER UPDATE ON posthouse_stuck
WHEN (old.topic, old.quarantined) <> (new.topic, new.quarantined) BEGIN
    INSERT INTO posthouse_tally (kind, name, topic, state, number) VALUES ('stuck', '', old.topic, iif(old.quarantined, 'refused', 'waiting'), -1)
    ON CONFLICT (kind, name, topic, state) DO UPDATE SET number = number + excluded.number;
    INSERT INTO posthouse_tally (kind, name, topic, state, number) VALUES ('stuck', '', new.topic, iif(new.quarantined, 'refused', 'waiting'), 1)
    ON CONFLICT (kind, name, topic, state) DO UPDATE SET number = number + excluded.number;
END;

CREATE TRIGGER posthouse_tally_timer_added AFTER INSERT ON posthouse_timer BEGIN
    INSERT INTO posthouse_tally (kind, name, topic, state, number) VALUES ('timer', '', '', '', 1)
    ON CONFLICT (kind, name, topic, state) DO UPDATE SET number = number + excluded.number;
END;

CREATE TRIGGER posthouse_tally_timer_gone AFTER DELETE ON posthouse_timer BEGIN
    INSERT INTO posthouse_tally (kind, name, topic, state, number) VALUES ('timer', '', '', '', -1)
    ON CONFLICT (kind, name, topic, state) DO UPDATE SET number = number + excluded.number;
END;
