-- One row of facts about the whole store. `lineage` grows after a failover or a restore; `system`, `database` and
-- `timeline` tell when that was, and are NULL where this server does not say.
CREATE TABLE posthouse.meta (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    identity text NOT NULL DEFAULT gen_random_uuid()::text,
    lanes integer NOT NULL,
    lineage integer NOT NULL DEFAULT 1,
    system text,
    database oid,
    timeline text
);

-- What goes out. Rows are added and deleted, never changed. `xid` is the transaction, also inside a savepoint; ids are
-- drawn one by one (CACHE 1) under the lock of their key, so that within a key they follow the commits.
CREATE TABLE posthouse.outbox (
    id bigint GENERATED ALWAYS AS IDENTITY (CACHE 1),
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    lane smallint NOT NULL,
    topic text NOT NULL,
    tenant text NOT NULL,
    key text,
    sequence bigint,
    lineage integer NOT NULL,
    event_id text NOT NULL,
    headers text,
    body bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.02);

-- Polls read what is new in a lane by transaction …
CREATE INDEX outbox_by_transaction ON posthouse.outbox (lane, xid);

-- … and long backlogs page by page. The expression keeps the planner from taking one index for the other's work.
CREATE INDEX outbox_by_id ON posthouse.outbox ((lane + 0), id);

-- The last number given to each key. Its row is locked before an id is drawn.
CREATE TABLE posthouse.key (
    topic text NOT NULL,
    tenant text NOT NULL,
    key text NOT NULL,
    sequence bigint NOT NULL,
    PRIMARY KEY (topic, tenant, key)
) WITH (fillfactor = 50);

-- Intents that were said already, remembered until a time.
CREATE TABLE posthouse.idempotency (
    tenant text NOT NULL,
    topic text NOT NULL,
    idempotency_key text NOT NULL,
    event_id text NOT NULL,
    until double precision NOT NULL,
    PRIMARY KEY (tenant, topic, idempotency_key)
);

CREATE INDEX idempotency_until ON posthouse.idempotency (until);

-- Shares of the outbox: who reads them, and how far the broker has accepted them. Everything visible in `s1` was dealt
-- with. While `s2` is set, what is visible in it and not in `s1` is read page by page: up to `last_id` so far, up to
-- `hi_id` in all.
CREATE TABLE posthouse.lane (
    number smallint PRIMARY KEY,
    owner text,
    epoch bigint NOT NULL DEFAULT 0,
    until double precision NOT NULL DEFAULT 0,
    s1 pg_snapshot NOT NULL DEFAULT '1:1:',
    s2 pg_snapshot,
    last_id bigint,
    hi_id bigint
) WITH (fillfactor = 20);

-- Relays that are alive, with or without lanes.
CREATE TABLE posthouse.member (
    owner text PRIMARY KEY,
    until double precision NOT NULL
);

-- Rows that the broker refused, and those of the same key behind them. The row itself stays in the outbox.
CREATE TABLE posthouse.stuck (
    id bigint PRIMARY KEY,
    lane smallint NOT NULL,
    topic text NOT NULL,
    tenant text NOT NULL,
    key text,
    attempts integer NOT NULL,
    first_at double precision NOT NULL,
    next_at double precision NOT NULL,
    error text NOT NULL,
    quarantined boolean NOT NULL
);

CREATE INDEX stuck_by_key ON posthouse.stuck (topic, tenant, key, id);

-- How many rows the broker has accepted: they may be purged, the figure stays. One row per topic and lane, so that two
-- relays never wait for each other here.
CREATE TABLE posthouse.sent (
    topic text NOT NULL,
    lane smallint NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (topic, lane)
) WITH (fillfactor = 50);

-- Which server this is, as far as it says: changed by dump and restore (system), and by failover (timeline).
CREATE FUNCTION posthouse.place(OUT system text, OUT timeline text) LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        SELECT system_identifier::text INTO system FROM pg_control_system();
    EXCEPTION WHEN insufficient_privilege OR undefined_function OR feature_not_supported THEN
        system := NULL;
    END;
    BEGIN
        timeline := substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8);
    EXCEPTION WHEN insufficient_privilege OR undefined_function OR feature_not_supported THEN
        timeline := NULL;
    END;
END $$;
