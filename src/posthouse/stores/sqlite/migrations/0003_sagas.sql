-- Sagas: where each stands.
CREATE TABLE posthouse_saga (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    saga TEXT NOT NULL,
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    status TEXT NOT NULL,
    turn INTEGER NOT NULL,
    reason TEXT NOT NULL,
    correlation TEXT,
    parent_saga TEXT,
    parent_id TEXT,
    parent_attempt INTEGER,
    started_at REAL NOT NULL,
    changed_at REAL NOT NULL,
    ended_at REAL,
    purged_at REAL,
    shape TEXT,
    progress TEXT NOT NULL,
    state BLOB NOT NULL,
    UNIQUE (saga, tenant, id, attempt)
);

-- For counting, and for those that wait for an operator.
CREATE INDEX posthouse_saga_status ON posthouse_saga (saga, status, number) WHERE purged_at IS NULL;

-- For purging those that ended, and for deleting their tombstones.
CREATE INDEX posthouse_saga_ended ON posthouse_saga (ended_at) WHERE ended_at IS NOT NULL AND purged_at IS NULL;
CREATE INDEX posthouse_saga_purged ON posthouse_saga (ended_at) WHERE purged_at IS NOT NULL;

-- For the children of one.
CREATE INDEX posthouse_saga_parent ON posthouse_saga (parent_saga, parent_id) WHERE parent_saga IS NOT NULL;

-- The fields that each is found by.
CREATE TABLE posthouse_saga_index (
    tenant TEXT NOT NULL,
    number INTEGER NOT NULL,
    field TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (number, field)
) WITHOUT ROWID;

CREATE INDEX posthouse_saga_index_value ON posthouse_saga_index (field, value, tenant, number);

-- The history of each: one record per turn, as JSON.
CREATE TABLE posthouse_saga_turn (
    number INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    record BLOB NOT NULL,
    PRIMARY KEY (number, turn)
) WITHOUT ROWID;

-- Events that came too early for theirs. Their order, and what they wait for, is in the progress of the saga.
CREATE TABLE posthouse_saga_waiting (
    number INTEGER NOT NULL,
    event_id TEXT NOT NULL,
    event BLOB NOT NULL,
    PRIMARY KEY (number, event_id)
) WITHOUT ROWID;

-- Where each stands, tombstones left out, for queries of the user: a promise, in docs/sagas.md column by column. Deadlines of our
-- own have a space in their names.
CREATE VIEW posthouse_saga_view AS
SELECT s.saga, s.tenant, s.id, s.attempt,
    NOT EXISTS (SELECT 1 FROM posthouse_saga n
        WHERE n.saga = s.saga AND n.tenant = s.tenant AND n.id = s.id AND n.attempt > s.attempt) AS newest,
    s.status, s.reason, CAST(s.state AS TEXT) AS state,
    (SELECT json_group_array(json_extract(d.value, '$[0]')) FROM json_each(s.progress, '$.done') d) AS done,
    (SELECT json_group_array(json_object(
        'type', json_extract(w.value, '$.type'), 'step', json_extract(w.value, '$.method'),
        'since', json_extract(w.value, '$.since'), 'until', json_extract(w.value, '$.until')))
        FROM json_each(s.progress, '$.waiting') w) AS waiting,
    coalesce(json_extract(s.progress, '$.tasks'), '{}') AS tasks,
    (SELECT json_group_object(d.key, json_extract(d.value, '$.due_at')) FROM json_each(s.progress, '$.deadlines') d
        WHERE instr(d.key, ' ') = 0) AS deadlines,
    s.parent_saga, s.parent_id, s.parent_attempt, s.started_at, s.changed_at, s.ended_at, s.number
FROM posthouse_saga s WHERE s.purged_at IS NULL;

-- The tally of sagas. One that ended counts as ended for ever, also when it is purged.
CREATE TRIGGER posthouse_tally_saga_added AFTER INSERT ON posthouse_saga
WHEN new.purged_at IS NULL BEGIN
    INSERT INTO posthouse_tally (kind, name, topic, state, number) VALUES ('saga', new.saga, '', new.status, 1)
    ON CONFLICT (kind, name, topic, state) DO UPDATE SET number = number + excluded.number;
END;

CREATE TRIGGER posthouse_tally_saga_gone AFTER DELETE ON posthouse_saga
WHEN old.purged_at IS NULL BEGIN
    INSERT INTO posthouse_tally (kind, name, topic, state, number) VALUES ('saga', old.saga, '', old.status, -1)
    ON CONFLICT (kind, name, topic, state) DO UPDATE SET number = number + excluded.number;
END;

CREATE TRIGGER posthouse_tally_saga_left AFTER UPDATE ON posthouse_saga
WHEN old.purged_at IS NULL AND (new.purged_at IS NOT NULL OR old.saga <> new.saga OR old.status <> new.status) BEGIN
    INSERT INTO posthouse_tally (kind, name, topic, state, number) VALUES ('saga', old.saga, '', old.status, -1)
    ON CONFLICT (kind, name, topic, state) DO UPDATE SET number = number + excluded.number;
END;

CREATE TRIGGER posthouse_tally_saga_entered AFTER UPDATE ON posthouse_saga
WHEN new.purged_at IS NULL AND (old.purged_at IS NOT NULL OR old.saga <> new.saga OR old.status <> new.status) BEGIN
    INSERT INTO posthouse_tally (kind, name, topic, state, number) VALUES ('saga', new.saga, '', new.status, 1)
    ON CONFLICT (kind, name, topic, state) DO UPDATE SET number = number + excluded.number;
END;

CREATE TRIGGER posthouse_tally_saga_ended AFTER UPDATE ON posthouse_saga
WHEN new.status IN ('completed', 'compensated', 'cancelled', 'partial') AND old.status <> new.status BEGIN
    INSERT INTO posthouse_tally (kind, name, topic, state, number) VALUES ('ended', new.saga, '', new.status, 1)
    ON CONFLICT (kind, name, topic, state) DO UPDATE SET number = number + excluded.number;
END;

CREATE TRIGGER posthouse_tally_saga_ended_at_once AFTER INSERT ON posthouse_saga
WHEN new.status IN ('completed', 'compensated', 'cancelled', 'partial') BEGIN
    INSERT INTO posthouse_tally (kind, name, topic, state, number) VALUES ('ended', new.saga, '', new.status, 1)
    ON CONFLICT (kind, name, topic, state) DO UPDATE SET number = number + excluded.number;
END;
