-- The tables of the store, each in the form that is in force; what they do together is in functions/. Times are seconds
-- since 1970, unless their type says otherwise. A unique key of a table with tenants begins with the tenant: such keys
-- look past row-level security, and nobody is to find or take what is another tenant's. The policies come from
-- posthouse.guard(), which is called once everything is there.

DO $$ BEGIN
    IF to_regnamespace('{schema}') IS NULL THEN CREATE SCHEMA {schema}; END IF;  -- somebody with more rights may have
END $$;

-- The migrations that were applied.
CREATE TABLE posthouse.migration (
    name text PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
);


-- The whole store

-- One row of facts about it. `system`, `database` and `timeline` tell when there was a failover or a restore, and are NULL
-- where this server does not say. A writer that has not seen the last turn of `slot` writes to the partition before: that is no
-- harm, since a partition is emptied only when nothing in it is needed.
CREATE TABLE posthouse.meta (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    identity text NOT NULL DEFAULT gen_random_uuid()::text,
    shards integer NOT NULL,
    lineage integer NOT NULL DEFAULT 1,  -- grows after a failover or a restore
    system text,
    database oid,
    timeline text,
    slot smallint NOT NULL DEFAULT 0,  -- the partition of the outbox that is written, and since when
    slot_since timestamptz NOT NULL DEFAULT now(),
    streams integer NOT NULL DEFAULT 1,  -- grows when transactions of stream_event are written anew: older cursors are void
    runs integer NOT NULL DEFAULT 0,  -- how many runs relays have seen, and since when this one; for people
    run_since timestamptz,
    guest text  -- where facts were said before a relay came, if that is not where the cursors were written
);

-- Which run of the server this is. A snapshot may name transactions that never reached the log; after a crash or a
-- promotion their numbers, and those of sequences, are given out again. So what one run said is never written to another:
-- whoever leases shards is told the token of the run, and every poll and settle says it again. The server itself empties
-- the table when it recovers and when it is promoted, also when only its sessions were restarted. The row is good only
-- where and while it was written: a restart, also that of an old copy of the disk, changes `started`, a dump brings
-- `maker` without its transaction, and a database that was made of another one (TEMPLATE) lies in another place.
CREATE UNLOGGED TABLE posthouse.incarnation (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    token text NOT NULL DEFAULT gen_random_uuid()::text,
    started timestamptz NOT NULL DEFAULT pg_postmaster_start_time(),
    maker xid NOT NULL DEFAULT pg_current_xact_id()::xid,
    home text NOT NULL  -- the path of the file of posthouse.meta
);

-- Who used which version of an event, first and last. Nothing of a tenant is in it.
CREATE TABLE posthouse.version_usage (
    role text NOT NULL,
    party text NOT NULL,
    subject text NOT NULL,
    first_at double precision NOT NULL,
    last_at double precision NOT NULL,
    PRIMARY KEY (role, party, subject)
);

-- What running processes have timed, one row for each. Nothing of a tenant is in it.
CREATE TABLE posthouse.timing (
    service text NOT NULL,
    process text NOT NULL,
    written_at double precision NOT NULL,
    figures bytea NOT NULL,
    PRIMARY KEY (service, process)
);


-- The outbox

-- What goes out. Rows are added and deleted, never changed. Ids are drawn one by one (CACHE 1) under the lock of their key,
-- so that within a key they follow the commits. It is a ring of partitions: writers fill one of them, what all shards have passed
-- is truncated, and no table is made or dropped while events flow. Which partition a row is in means nothing to those who read
-- it.
CREATE TABLE posthouse.outbox (
    id bigint GENERATED ALWAYS AS IDENTITY (CACHE 1),
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),  -- the transaction, also inside a savepoint
    shard smallint NOT NULL,
    topic text NOT NULL,
    tenant text NOT NULL,
    key text,
    sequence bigint,  -- the number within the key; NULL without one
    lineage integer NOT NULL,
    event_id text NOT NULL,
    headers text,
    body bytea NOT NULL,
    slot smallint NOT NULL DEFAULT 0  -- the partition
) PARTITION BY LIST (slot);

-- A partition that is truncated soon needs no vacuum because of what was added to it: that would write three bytes per event.
CREATE TABLE posthouse.outbox_0 PARTITION OF posthouse.outbox FOR VALUES IN (0)
    WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_threshold = -1);
CREATE TABLE posthouse.outbox_1 PARTITION OF posthouse.outbox FOR VALUES IN (1)
    WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_threshold = -1);
CREATE TABLE posthouse.outbox_2 PARTITION OF posthouse.outbox FOR VALUES IN (2)
    WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_threshold = -1);
CREATE TABLE posthouse.outbox_3 PARTITION OF posthouse.outbox FOR VALUES IN (3)
    WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_threshold = -1);

-- Stuck rows that outlived their partition: a truncated partition leaves them here, with their ids and transactions.
CREATE TABLE posthouse.outbox_kept PARTITION OF posthouse.outbox FOR VALUES IN (-1);

-- Polls read what is new in a shard by transaction …
CREATE INDEX outbox_by_transaction ON posthouse.outbox (shard, xid);

-- … and long backlogs page by page.
CREATE INDEX outbox_by_id ON posthouse.outbox (id);

-- A sequence that nobody drew from shows the number that it gives first. Relays look whether it has moved, and would not see
-- the first row of all: so one number is drawn for nobody.
SELECT nextval('posthouse.outbox_id_seq');

-- The last number given to each key. Its row is locked before an id is drawn.
CREATE TABLE posthouse.key (
    topic text NOT NULL,
    tenant text NOT NULL,
    key text NOT NULL,
    sequence bigint NOT NULL,
    PRIMARY KEY (tenant, topic, key)
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

-- What is due later.
CREATE TABLE posthouse.timer (
    id bigint GENERATED ALWAYS AS IDENTITY,
    name text NOT NULL,
    due_at double precision NOT NULL,
    shard smallint NOT NULL,
    topic text NOT NULL,
    tenant text NOT NULL,
    event_id text NOT NULL,
    key text,
    numbered boolean NOT NULL,  -- whether it gets a number of its key when it goes out
    idempotency_key text,
    headers text,
    body bytea NOT NULL,
    PRIMARY KEY (tenant, name)
);

CREATE INDEX timer_by_id ON posthouse.timer (id);

CREATE INDEX timer_due_at ON posthouse.timer (due_at, id);


-- Relays

-- Shares of the outbox: who reads them, and how far the broker has accepted them.
CREATE TABLE posthouse.shard (
    number smallint PRIMARY KEY,
    owner text,
    epoch bigint NOT NULL DEFAULT 0,  -- grows whenever it is taken, and with each run of the server
    until double precision NOT NULL DEFAULT 0,
    s1 pg_snapshot NOT NULL DEFAULT '1:1:',  -- everything visible in it was dealt with
    backlog bigint,  -- the number of the backlog that the shard is in
    floor bigint NOT NULL DEFAULT 0  -- transactions that began after `s1` draw ids above it: nobody need look for the first
) WITH (fillfactor = 20);

-- What is visible in `s2`, and for each of its shards not in the shard's `s1`, is read page by page, in the order of ids over
-- all shards at once, as the rows lie in the table: shard by shard, every row would be looked up where its neighbours are not.
-- How far a backlog was read is one row, whatever the number of its shards.
CREATE TABLE posthouse.backlog (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    s2 pg_snapshot NOT NULL,
    last_id bigint NOT NULL,  -- up to here so far …
    hi_id bigint NOT NULL,  -- … and up to here in all
    floor bigint NOT NULL  -- for its shards once it was read
) WITH (fillfactor = 20);

-- Relays that are alive, with or without shards.
CREATE TABLE posthouse.member (
    owner text PRIMARY KEY,
    until double precision NOT NULL,
    reads text  -- where its rows come from, in its own words; NULL for one that was never to follow the log
);

-- Rows that the broker refused, and those of the same key behind them. The row itself stays in the outbox.
CREATE TABLE posthouse.stuck (
    id bigint NOT NULL,
    shard smallint NOT NULL,
    topic text NOT NULL,
    tenant text NOT NULL,
    key text,
    attempts integer NOT NULL,
    first_at double precision NOT NULL,
    next_at double precision NOT NULL,
    error text NOT NULL,
    quarantined boolean NOT NULL,
    PRIMARY KEY (tenant, id)
);

CREATE INDEX stuck_by_id ON posthouse.stuck (id);

CREATE INDEX stuck_by_key ON posthouse.stuck (topic, tenant, key, id);

-- How many rows the broker has accepted: they may be purged, the figure stays. One row per topic and shard, so that two
-- relays never wait for each other here.
CREATE TABLE posthouse.sent (
    topic text NOT NULL,
    shard smallint NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (topic, shard)
) WITH (fillfactor = 50);


-- Consumers

-- Which topics a consumer reads, and how it began.
CREATE TABLE posthouse.consumer (
    consumer text NOT NULL,
    topic text NOT NULL,
    adopt boolean NOT NULL,  -- whether it takes the first number it sees of a key; decided at its first start
    PRIMARY KEY (consumer, topic)
);

-- Ordered consumers: the last event applied of each key.
CREATE TABLE posthouse.head (
    consumer text NOT NULL,
    topic text NOT NULL,
    tenant text NOT NULL,
    key text NOT NULL,
    sequence bigint NOT NULL,
    lineage integer NOT NULL,
    event_id text NOT NULL,  -- empty while none was applied
    digest bytea NOT NULL,
    newest bigint NOT NULL DEFAULT 0,  -- when the newest id of all of them was drawn (milliseconds)
    held integer NOT NULL DEFAULT 0,  -- how many of the key are held in a blocking state
    PRIMARY KEY (tenant, consumer, topic, key)
) WITH (fillfactor = 70);

-- Unordered consumers: every event applied, until it is purged.
CREATE TABLE posthouse.inbox (
    consumer text NOT NULL,
    tenant text NOT NULL,
    event_id text NOT NULL,
    topic text NOT NULL,
    digest bytea NOT NULL,
    time double precision NOT NULL,
    received_at double precision NOT NULL,
    result text NOT NULL,
    PRIMARY KEY (tenant, consumer, event_id)
);

CREATE INDEX inbox_received_at ON posthouse.inbox (received_at);

-- Up to what time events may have been applied and purged.
CREATE TABLE posthouse.forgotten (
    consumer text PRIMARY KEY,
    until double precision NOT NULL
);

-- One line for each event applied or skipped, added with it. Adding locks nothing: a figure that all workers of a
-- consumer change would let only one of them commit at a time.
CREATE TABLE posthouse.applied_count (
    consumer text NOT NULL,
    topic text NOT NULL,
    applied integer NOT NULL,
    skipped integer NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

-- The sum of the lines that were cleared away; the columns are those of applied_count, in the same order.
CREATE TABLE posthouse.applied (
    consumer text NOT NULL,
    topic text NOT NULL,
    applied bigint NOT NULL,
    skipped bigint NOT NULL,
    PRIMARY KEY (consumer, topic)
) WITH (fillfactor = 50);

-- What could not be applied. Functions are given whole rows of it: the order of the columns counts.
CREATE TABLE posthouse.held (
    id bigint GENERATED ALWAYS AS IDENTITY,
    consumer text NOT NULL,
    topic text NOT NULL,
    tenant text NOT NULL,
    key text,
    sequence bigint,
    lineage integer NOT NULL,
    event_id text NOT NULL,
    digest bytea NOT NULL,
    time double precision NOT NULL,
    state text NOT NULL,
    type text NOT NULL,
    headers text,
    body bytea NOT NULL,
    attempts integer NOT NULL,
    next_at double precision NOT NULL,
    first_at double precision NOT NULL,
    last_at double precision NOT NULL,
    reason text NOT NULL,
    error text NOT NULL,
    stack text NOT NULL,
    turn bigint NOT NULL DEFAULT 0,  -- grows with every change: one that was decided on an older row has no effect
    PRIMARY KEY (tenant, id)
);

CREATE INDEX held_by_id ON posthouse.held (id);

-- At most one event of a number keeps its key waiting: another one with that number is a fork.
CREATE UNIQUE INDEX held_waiting ON posthouse.held (tenant, consumer, topic, key, sequence)
    WHERE sequence IS NOT NULL AND state IN ('retrying', 'gap', 'blocked', 'dead');

CREATE UNIQUE INDEX held_ordered ON posthouse.held (tenant, consumer, topic, key, sequence, event_id)
    WHERE sequence IS NOT NULL;

CREATE UNIQUE INDEX held_unordered ON posthouse.held (tenant, consumer, event_id) WHERE sequence IS NULL;

CREATE INDEX held_next_at ON posthouse.held (consumer, state, next_at);


-- Sagas

-- Where each stands. Whoever takes a turn locks its row. Most updates touch no indexed column and stay in the page.
CREATE TABLE posthouse.saga (
    number bigint GENERATED ALWAYS AS IDENTITY,
    tenant text NOT NULL,
    saga text NOT NULL,
    id text NOT NULL,
    status text NOT NULL,
    turn integer NOT NULL,
    reason text NOT NULL,
    started_at double precision NOT NULL,
    changed_at double precision NOT NULL,
    ended_at double precision,
    progress text NOT NULL,
    state text NOT NULL,
    PRIMARY KEY (tenant, saga, id)
) WITH (fillfactor = 70);

CREATE INDEX saga_by_number ON posthouse.saga (number);

CREATE INDEX saga_status ON posthouse.saga (saga, status);

-- For forgetting those that ended.
CREATE INDEX saga_ended_at ON posthouse.saga (ended_at) WHERE ended_at IS NOT NULL;

-- The history of each: one record per turn, as JSON.
CREATE TABLE posthouse.saga_turn (
    tenant text NOT NULL,
    number bigint NOT NULL,
    turn integer NOT NULL,
    record text NOT NULL,
    PRIMARY KEY (tenant, number, turn)
);


-- Streams

-- The last version of each stream; whoever appends locks its row, so that versions follow commits.
CREATE TABLE posthouse.stream (
    tenant text NOT NULL,
    aggregate text NOT NULL,
    stream text NOT NULL,
    version bigint NOT NULL,
    PRIMARY KEY (tenant, aggregate, stream)
) WITH (fillfactor = 80);

-- What happened. A position is drawn under the lock of the stream. CACHE 1: a session that keeps numbers in stock would
-- give a later event a lower one. The transaction tells who reads everything what was committed since he last looked.
CREATE TABLE posthouse.stream_event (
    position bigint GENERATED ALWAYS AS IDENTITY (CACHE 1),
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    tenant text NOT NULL,
    aggregate text NOT NULL,
    stream text NOT NULL,
    version bigint NOT NULL,
    event_id text NOT NULL,
    type text NOT NULL,
    headers text,
    body bytea NOT NULL,
    PRIMARY KEY (tenant, aggregate, stream, version)
);

CREATE INDEX stream_event_by_position ON posthouse.stream_event (position);
CREATE INDEX stream_event_by_transaction ON posthouse.stream_event (xid);

-- What streams came to, as a cache: one for each.
CREATE TABLE posthouse.snapshot (
    tenant text NOT NULL,
    aggregate text NOT NULL,
    stream text NOT NULL,
    version bigint NOT NULL,
    shape text NOT NULL,
    state bytea NOT NULL,
    PRIMARY KEY (tenant, aggregate, stream)
);


-- Projections

-- The generations of read models. Nothing of a tenant is in it.
CREATE TABLE posthouse.generation (
    projection text NOT NULL,
    number integer NOT NULL,
    version integer NOT NULL,  -- that of the code that fills it
    state text NOT NULL,
    source text NOT NULL,
    phase text NOT NULL,
    tables text[] NOT NULL,  -- their names, in the order in which they were made
    cursor text NOT NULL,  -- where the bulk read goes on, and how many events it has handed over
    read bigint NOT NULL,
    owner text NOT NULL,  -- who fills one that is being built, until a time
    until double precision NOT NULL,
    made_at double precision NOT NULL,
    live_at double precision NOT NULL,
    retired_at double precision NOT NULL,
    drop_at double precision,  -- when a retired one may go; NULL: never by itself
    event_at double precision NOT NULL,  -- the time of the last event applied, and when that was; 0: none yet
    applied_at double precision NOT NULL,
    history text NOT NULL DEFAULT 'unknown',  -- or, once it was looked at, whether it has all that ever happened: 'whole', 'partial'
    PRIMARY KEY (projection, number)
) WITH (fillfactor = 50);

-- One that is read and one that is being built, at most.
CREATE UNIQUE INDEX generation_state ON posthouse.generation (projection, state) WHERE state <> 'retired';

-- The last number that a generation of a projection got: none is given twice, whatever becomes of the generation.
CREATE TABLE posthouse.generation_number (
    projection text PRIMARY KEY,
    last integer NOT NULL
);

-- Up to which version each stream was read in bulk: what comes again from the broker is known by it.
CREATE TABLE posthouse.overlap (
    tenant text NOT NULL,
    projection text NOT NULL,
    number integer NOT NULL,
    aggregate text NOT NULL,
    stream text NOT NULL,
    version bigint NOT NULL,
    PRIMARY KEY (tenant, projection, number, aggregate, stream)
);
