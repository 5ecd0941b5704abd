-- The tables of the store, each in the form that is in force; what they do together is in functions/. Times are seconds
-- since 1970, unless their type says otherwise. Some columns mean the same everywhere: `tenant` is whose row it is;
-- `topic`, `key`, `sequence` and `lineage` are where an event stands (`key` NULL: it stands alone, `sequence` NULL: without a
-- number; a number of a newer lineage counts anew); `event_id`, `type`, `headers` (JSON, NULL for none) and `body` are the
-- envelope as it is on the wire; `consumer` is a consumer group; `digest` is that of an event, to tell a repeated one from
-- another with its id. A unique key of a table with tenants begins with the tenant: such keys
-- look past row-level security, and nobody is to find or take what is another tenant's. The policies come from
-- posthouse.guard(), which is called once everything is there.

DO $$ BEGIN
    IF to_regnamespace('{schema}') IS NULL THEN CREATE SCHEMA {schema};  -- somebody with more rights may have
    ELSIF EXISTS (SELECT FROM pg_class c
        WHERE c.relnamespace = to_regnamespace('{schema}') AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')) THEN
        RAISE EXCEPTION 'the schema {schema} has tables of somebody else: the store needs a schema of its own'
        USING HINT = 'Name another one with schema=…; it is made where it is missing.';
    END IF;
END $$;

-- The migrations that were applied.
CREATE TABLE posthouse.migration (
    name text PRIMARY KEY,  -- that of its file
    applied_at timestamptz NOT NULL DEFAULT now()  -- when
);


-- The whole store

-- One row of facts about it. `system`, `database` and `timeline` tell when there was a failover or a restore, and are NULL
-- where this server does not say. A writer that has not seen the last turn of `slot` writes to the partition before: that is no
-- harm, since a partition is emptied only when nothing in it is needed.
CREATE TABLE posthouse.meta (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),  -- there is one row
    identity text NOT NULL DEFAULT gen_random_uuid()::text,  -- of this store; whoever writes says which one he means
    shards integer NOT NULL,  -- how many the outbox has; fixed when the tables are made
    lineage integer NOT NULL DEFAULT 1,  -- grows after a failover or a restore
    system text,  -- the identifier of the server
    database oid,  -- its database
    timeline text,  -- its line of WAL, which a promotion changes
    slot smallint NOT NULL DEFAULT 0,  -- the partition of the outbox that is written
    slot_since timestamptz NOT NULL DEFAULT now(),  -- and since when
    slot_left double precision[] NOT NULL DEFAULT '{0,0,0,0}',  -- when writers left each of the others
    purged xid8 NOT NULL DEFAULT '0',  -- rows of the outbox may be gone whose transactions are up to this one
    streams integer NOT NULL DEFAULT 1,  -- grows when transactions of stream_event are written anew: older cursors are void
    runs integer NOT NULL DEFAULT 0,  -- how many runs relays have seen; for people
    run_since timestamptz,  -- and since when this one
    guest text,  -- where facts were said before a relay came, if that is not where the cursors were written
    guest_since bigint  -- the last id of the outbox then: of later rows the cursors know nothing
);

-- Which run of the server this is. A snapshot may name transactions that never reached the log; after a crash or a
-- promotion their numbers, and those of sequences, are given out again. So what one run said is never written to another:
-- whoever leases shards is told the token of the run, and every poll and settle says it again. The server itself empties
-- the table when it recovers and when it is promoted, also when only its sessions were restarted. The row is good only
-- where and while it was written: a restart, also that of an old copy of the disk, changes `started`, a dump brings
-- `maker` without its transaction, and a database that was made of another one (TEMPLATE) lies in another place.
CREATE UNLOGGED TABLE posthouse.incarnation (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),  -- there is one row
    token text NOT NULL DEFAULT gen_random_uuid()::text,  -- of this run
    started timestamptz NOT NULL DEFAULT pg_postmaster_start_time(),  -- when the server was
    maker xid NOT NULL DEFAULT pg_current_xact_id()::xid,  -- the transaction that wrote the row
    home text NOT NULL  -- the path of the file of posthouse.meta
);

-- Who used which version of an event, first and last. Nothing of a tenant is in it.
CREATE TABLE posthouse.version_usage (
    role text NOT NULL,  -- published, applied or running
    party text NOT NULL,  -- a service, or a consumer
    subject text NOT NULL,  -- type and version; empty for running
    first_at double precision NOT NULL,  -- first seen
    last_at double precision NOT NULL,  -- last seen
    PRIMARY KEY (role, party, subject)
);

-- Who runs: one row for each start of a process, until a day after its last sign of life. Nothing of a tenant is in it.
CREATE TABLE posthouse.worker (
    id text PRIMARY KEY,  -- of this start
    services text NOT NULL,  -- what it runs, with commas
    name text NOT NULL,  -- host and process, as in envelopes
    host text NOT NULL,  -- of the machine or container
    pid integer NOT NULL,  -- of the process there
    version text NOT NULL,  -- of Posthouse
    commit text NOT NULL,  -- of the application, as POSTHOUSE_COMMIT says; empty where it does not
    parts text NOT NULL,  -- of relay, consumers and timers, with commas
    consumers text NOT NULL,  -- that its services declare, with commas
    releases text NOT NULL,  -- of the sagas among them, each behind its consumer, with commas
    aside text NOT NULL,  -- those of them that it does not run at the moment, each with the reason, with commas
    started_at double precision NOT NULL,  -- first sign of life
    seen_at double precision NOT NULL,  -- last one
    stopped boolean NOT NULL,  -- whether that was the end, in good order
    figures bytea NOT NULL  -- what it timed, as JSON
) WITH (fillfactor = 50);

-- What operators did, and why; added with the act itself. `tenant`, `topic`, `key`, `consumer` and `event_id` are empty where
-- they do not apply.
CREATE TABLE posthouse.action (
    id text COLLATE "C" NOT NULL,  -- drawn by whoever acted
    at double precision NOT NULL,  -- when
    by text NOT NULL,  -- who
    why text NOT NULL,  -- in their words
    verb text NOT NULL,  -- the command
    service text NOT NULL,  -- whose
    consumer text NOT NULL,
    topic text NOT NULL,
    tenant text NOT NULL,
    key text NOT NULL,
    event_id text NOT NULL,
    target text NOT NULL,  -- what it was done to, as the command names it
    changed text NOT NULL,  -- names with before and after, as JSON
    count bigint NOT NULL,  -- how many it was done to
    outcome text NOT NULL,  -- done; begun, of what is no transaction of the store; or why it failed
    PRIMARY KEY (tenant, id)
);

CREATE INDEX action_at ON posthouse.action (at, id);

CREATE INDEX action_event_id ON posthouse.action (event_id, at) WHERE event_id <> '';

-- What operators asked to be done to many things. Only the runtime sees it: what is frozen in it may name tenants.
CREATE TABLE posthouse.job (
    id text PRIMARY KEY,  -- drawn by whoever pressed, in the order of pressing
    service text NOT NULL,  -- whose
    act text NOT NULL,  -- what is done to each
    frozen bytea NOT NULL,  -- parameters, who, why, how, up to which, as JSON
    state text NOT NULL,  -- running, paused, done, stopped, cancelled, failed
    position bigint NOT NULL,  -- the last item that was dealt with
    done bigint NOT NULL,  -- were acted on
    refused bigint NOT NULL,  -- were not
    applied bigint NOT NULL,  -- of those acted on: went well
    failed bigint NOT NULL,  -- and failed again
    open bytea NOT NULL,  -- those whose outcome is not known, as JSON
    canary_passed boolean NOT NULL,  -- whether the first ones are not waited for any more
    note text NOT NULL,  -- why the last one was refused, or why it could not go on
    holder text NOT NULL,  -- who runs it
    token bigint NOT NULL,  -- grows with each lease: fences whoever had it before
    leased_until double precision NOT NULL,  -- by `holder`
    created_at double precision NOT NULL,  -- when it was pressed
    changed_at double precision NOT NULL,  -- when anything here was written last
    ended_at double precision  -- NULL while it is not over
) WITH (fillfactor = 50);

CREATE INDEX job_running ON posthouse.job (id) WHERE state = 'running';
CREATE INDEX job_ended ON posthouse.job (ended_at) WHERE ended_at IS NOT NULL;

-- Grants: who may replay or edit what for a while, and who else said so. Only the runtime sees it: a scope may name tenants.
CREATE TABLE posthouse.replay_grant (
    id text PRIMARY KEY,  -- drawn by whoever asked, in the order of asking
    service text NOT NULL,  -- whose events
    verb text NOT NULL CHECK (verb IN ('replay', 'edit')),  -- what may be done
    scope bytea NOT NULL,  -- to which events, as JSON
    why text NOT NULL CHECK (why <> ''),  -- in the words of whoever asked
    asked_by text NOT NULL CHECK (asked_by <> ''),  -- a name
    asked_as text NOT NULL,  -- how they were known: signed in at a console, or as whom of which machine
    minutes integer NOT NULL CHECK (minutes BETWEEN 1 AND 60),  -- from the approval on
    most bigint NOT NULL CHECK (most > 0),  -- events
    rate double precision NOT NULL CHECK (rate > 0),  -- events per second
    asked_at double precision NOT NULL,  -- by the clock of this database, as all times here
    approved_by text,  -- NULL until somebody else approved
    approved_as text,  -- as asked_as
    approved_at double precision,  -- when it began to run
    ends_at double precision CHECK (ends_at <= approved_at + 3600),  -- nothing is done after it
    revoked_by text,  -- who ended it before
    revoked_at double precision,  -- from when on nothing is done
    used bigint NOT NULL CHECK (used <= most),  -- events that it was spent on
    next_at double precision NOT NULL,  -- when the next event has its place in the pace
    CONSTRAINT replay_grant_approved
        CHECK ((approved_at IS NULL) = (ends_at IS NULL) AND (approved_at IS NULL) = (approved_by IS NULL)),
    CONSTRAINT replay_grant_two_people
        CHECK (approved_by IS NULL OR (lower(approved_by) <> lower(asked_by) AND approved_as <> asked_as))
);


-- Archives: where each is, and how far the log beside its files was read. Only the runtime sees what is of archives.
CREATE TABLE posthouse.archive (
    number integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- what it is called in the tables below
    name text NOT NULL UNIQUE,  -- of its consumer group
    place text NOT NULL,  -- what the place is called in a file there
    generation bigint NOT NULL  -- the last entry of its log that is known here
) WITH (fillfactor = 50);

-- What is about to be written to an archive, or was.
CREATE TABLE posthouse.archive_plan (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- what it is called in archive_event
    id text NOT NULL UNIQUE,  -- what its objects are called after
    archive integer NOT NULL,  -- number in archive
    state text NOT NULL CHECK (state IN ('planned', 'done')),  -- a plan that was given up is deleted
    owner text NOT NULL,  -- the member that writes it
    objects bytea NOT NULL,  -- their names, as JSON
    events bigint NOT NULL,  -- so many are its own
    leased_until double precision NOT NULL,  -- by the owner; by the clock of this database, as all times here
    created_at double precision NOT NULL,  -- before anything was written
    done_at double precision  -- NULL while it is not done
) WITH (fillfactor = 50);

CREATE INDEX archive_plan_open ON posthouse.archive_plan (archive, number) WHERE state = 'planned';
CREATE INDEX archive_plan_done ON posthouse.archive_plan (archive, done_at) WHERE done_at IS NOT NULL;

-- Which events are planned or archived, for as long as the same one may come again.
CREATE TABLE posthouse.archive_event (
    archive integer NOT NULL,  -- number in archive
    digest bytea NOT NULL,  -- of topic, tenant, id and body
    plan bigint NOT NULL,  -- number in archive_plan
    PRIMARY KEY (archive, digest)
);

CREATE INDEX archive_event_plan ON posthouse.archive_event (plan);


-- How many there are of something that may be too many to count: one line for each change, added with it by the triggers in
-- functions/tally.sql. Adding locks nothing, as with applied_count. Nothing of a tenant is in it.
CREATE TABLE posthouse.tally_change (
    kind text NOT NULL,  -- held, stuck, timer, saga; failure, which are the held ones again; or ended, which only grows
    name text NOT NULL,  -- the consumer or the saga, else empty
    topic text NOT NULL,  -- empty for sagas and timers; of failures their fingerprint
    state text NOT NULL,  -- of held ones also strange, and how: no event could be read in it; of stuck ones refused or waiting
    number bigint NOT NULL  -- so many more
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

-- The sum of the lines that were cleared away; the columns are those of tally_change, in the same order.
CREATE TABLE posthouse.tally (
    kind text NOT NULL,  -- of what
    name text NOT NULL,  -- whose
    topic text NOT NULL,
    state text NOT NULL,  -- how they stand
    number bigint NOT NULL,  -- so many
    PRIMARY KEY (kind, name, topic, state)
) WITH (fillfactor = 50);


-- The outbox

-- What goes out. Rows are added and deleted, never changed. Ids are drawn one by one (CACHE 1) under the lock of their key,
-- so that within a key they follow the commits. It is a ring of partitions: writers fill one of them, what all shards have passed
-- is truncated, and no table is made or dropped while events flow. Which partition a row is in means nothing to those who read
-- it.
CREATE TABLE posthouse.outbox (
    id bigint GENERATED ALWAYS AS IDENTITY (CACHE 1),  -- in the order of commits within a key
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),  -- the transaction, also inside a savepoint
    shard smallint NOT NULL,  -- that of its key
    topic text NOT NULL,
    tenant text NOT NULL,
    key text,
    sequence bigint,  -- the number within the key; NULL without one
    lineage integer NOT NULL,
    event_id text NOT NULL,
    headers text,
    body bytea NOT NULL,
    slot smallint NOT NULL DEFAULT 0,  -- the partition
    written_at timestamptz NOT NULL DEFAULT statement_timestamp()  -- when, however long its transaction was open before
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
    sequence bigint NOT NULL,  -- the last number given
    PRIMARY KEY (tenant, topic, key)
) WITH (fillfactor = 50);

-- Intents that were said already, remembered until a time.
CREATE TABLE posthouse.idempotency (
    tenant text NOT NULL,
    topic text NOT NULL,
    idempotency_key text NOT NULL,  -- as the producer said it
    event_id text NOT NULL,  -- the event that stands for it
    until double precision NOT NULL,  -- remembered until
    PRIMARY KEY (tenant, topic, idempotency_key)
);

CREATE INDEX idempotency_until ON posthouse.idempotency (until);

-- What is due later.
CREATE TABLE posthouse.timer (
    id bigint GENERATED ALWAYS AS IDENTITY,  -- in the order of setting
    name text NOT NULL,  -- unique per tenant; cancels it
    due_at double precision NOT NULL,  -- when it goes out
    shard smallint NOT NULL,  -- that of its key
    topic text NOT NULL,
    tenant text NOT NULL,
    event_id text NOT NULL,
    key text,
    numbered boolean NOT NULL,  -- whether it gets a number of its key when it goes out
    idempotency_key text,  -- as in the outbox
    headers text,
    body bytea NOT NULL,
    PRIMARY KEY (tenant, name)
);

CREATE INDEX timer_by_id ON posthouse.timer (id);

CREATE INDEX timer_due_at ON posthouse.timer (due_at, id);

CREATE INDEX timer_of_tenant ON posthouse.timer (tenant, due_at, id);

-- What runs again and again. Nothing of a tenant is in it.
CREATE TABLE posthouse.schedule (
    service text NOT NULL,  -- whose
    name text NOT NULL,  -- its own
    expression text NOT NULL,  -- when it runs, as five fields of cron
    tz text NOT NULL,  -- the time zone of these
    next_at double precision NOT NULL,  -- the moment that comes next
    last_at double precision,  -- the moment for which a run was begun last; NULL: not yet
    done_at double precision,  -- the latest moment whose run was done; NULL: none
    ended_at double precision,  -- when that was
    paused_at double precision,  -- since when nothing runs; NULL: it runs
    seen_at double precision NOT NULL,  -- when a process that has it like this last said so
    PRIMARY KEY (service, name)
) WITH (fillfactor = 50);


-- Relays

-- Shares of the outbox: who reads them, and how far the broker has accepted them.
CREATE TABLE posthouse.shard (
    number smallint PRIMARY KEY,  -- from 0 on
    owner text,  -- the relay that holds it; NULL: nobody
    epoch bigint NOT NULL DEFAULT 0,  -- grows whenever it is taken, and with each run of the server
    until double precision NOT NULL DEFAULT 0,  -- when its lease ends
    s1 pg_snapshot NOT NULL DEFAULT '1:1:',  -- everything visible in it was dealt with
    backlog bigint,  -- the number of the backlog that the shard is in
    floor bigint NOT NULL DEFAULT 0  -- transactions that began after `s1` draw ids above it: nobody need look for the first
) WITH (fillfactor = 20);

-- What is visible in `s2`, and for each of its shards not in the shard's `s1`, is read page by page, in the order of ids over
-- all shards at once, as the rows lie in the table: shard by shard, every row would be looked up where its neighbours are not.
-- How far a backlog was read is one row, whatever the number of its shards.
CREATE TABLE posthouse.backlog (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- in the order of opening
    s2 pg_snapshot NOT NULL,  -- up to which snapshot it goes
    last_id bigint NOT NULL,  -- up to here so far …
    hi_id bigint NOT NULL,  -- … and up to here in all
    floor bigint NOT NULL  -- for its shards once it was read
) WITH (fillfactor = 20);

-- Relays that are alive, with or without shards.
CREATE TABLE posthouse.member (
    owner text PRIMARY KEY,  -- the relay
    until double precision NOT NULL,  -- when it counts as dead
    reads text  -- where its rows come from, in its own words; NULL for one that was never to follow the log
);

-- Rows that the broker refused, and those of the same key behind them. The row itself stays in the outbox.
CREATE TABLE posthouse.stuck (
    id bigint NOT NULL,  -- of the row in the outbox
    shard smallint NOT NULL,  -- that of its key
    topic text NOT NULL,
    tenant text NOT NULL,
    key text,
    attempts integer NOT NULL,  -- tries; 0 for one that waits behind another
    first_at double precision NOT NULL,  -- of the first refusal
    next_at double precision NOT NULL,  -- of the next try
    error text NOT NULL,  -- the broker's last word
    quarantined boolean NOT NULL,  -- refused for good: only an operator tries again
    PRIMARY KEY (tenant, id)
);

CREATE INDEX stuck_by_id ON posthouse.stuck (id);

CREATE INDEX stuck_by_key ON posthouse.stuck (topic, tenant, key, id);

-- How old the oldest is of those that the broker may still take.
CREATE INDEX stuck_waiting ON posthouse.stuck (topic, first_at) WHERE NOT quarantined;

-- How many rows the broker has accepted: they may be purged, the figure stays. One row per topic and shard, so that two
-- relays never wait for each other here.
CREATE TABLE posthouse.sent (
    topic text NOT NULL,
    shard smallint NOT NULL,  -- the lowest of the relay that counted
    count bigint NOT NULL,  -- accepted so far
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
    sequence bigint NOT NULL,  -- the last number applied
    lineage integer NOT NULL,  -- of that number
    event_id text NOT NULL,  -- empty while none was applied
    digest bytea NOT NULL,  -- of that event
    newest bigint NOT NULL DEFAULT 0,  -- when the newest id of all of them was drawn (milliseconds)
    lineages text NOT NULL DEFAULT '',  -- the lineages before this one, each with its last number: '1:3 2:7 '
    held integer NOT NULL DEFAULT 0,  -- how many of the key are held in a blocking state, and one more while it is replayed
    replay text NOT NULL DEFAULT '',  -- the job and the token that replay it, as in 'job:3'; empty: nobody does
    PRIMARY KEY (tenant, consumer, topic, key)
) WITH (fillfactor = 70);

-- The keys that a replay has closed: whoever ends its job opens them.
CREATE INDEX head_replayed ON posthouse.head (replay) WHERE replay <> '';

-- Replays: how many events were put aside for one, once that was through.
CREATE TABLE posthouse.replay (
    job text PRIMARY KEY,  -- its job
    staged bigint NOT NULL,  -- events that were to be applied
    left_out bigint NOT NULL  -- and those of the range that were not
);

-- What a replay still has to apply.
CREATE TABLE posthouse.replay_event (
    job text NOT NULL,  -- whose
    topic text NOT NULL,
    tenant text NOT NULL,
    key text NOT NULL,  -- empty where it stands in no order
    sequence bigint NOT NULL,  -- its number in the order of its key; 0 where it has none
    lineage integer NOT NULL,
    event_id text NOT NULL,
    stored_at double precision NOT NULL,  -- when its source had it
    headers text,  -- JSON; NULL where there are none
    body bytea NOT NULL,  -- as it travelled
    again boolean NOT NULL,  -- whether it was applied before it was put aside
    attempts integer NOT NULL,  -- runs that failed, or that nobody survived
    error text NOT NULL,  -- why its key stands still; empty while it does not
    PRIMARY KEY (tenant, job, topic, event_id)
);

CREATE INDEX replay_event_line ON posthouse.replay_event (job, topic, tenant, key, sequence, lineage, event_id);

-- Unordered consumers: every event applied, until it is purged.
CREATE TABLE posthouse.inbox (
    consumer text NOT NULL,
    tenant text NOT NULL,
    event_id text NOT NULL,
    topic text NOT NULL,
    digest bytea NOT NULL,
    time double precision NOT NULL,  -- of the event, as the broker has it
    received_at double precision NOT NULL,  -- from when on its age counts
    result text NOT NULL,  -- applied or skipped
    PRIMARY KEY (tenant, consumer, event_id)
);

CREATE INDEX inbox_received_at ON posthouse.inbox (received_at);

-- Up to what time events may have been applied and purged.
CREATE TABLE posthouse.forgotten (
    consumer text PRIMARY KEY,
    until double precision NOT NULL  -- not later than this
);

-- One line for each event applied or skipped, added with it. Adding locks nothing: a figure that all workers of a
-- consumer change would let only one of them commit at a time.
CREATE TABLE posthouse.applied_count (
    consumer text NOT NULL,
    topic text NOT NULL,
    applied integer NOT NULL,  -- events applied
    skipped integer NOT NULL  -- events given up
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

-- The sum of the lines that were cleared away; the columns are those of applied_count, in the same order.
CREATE TABLE posthouse.applied (
    consumer text NOT NULL,
    topic text NOT NULL,
    applied bigint NOT NULL,  -- events applied
    skipped bigint NOT NULL,  -- events given up
    PRIMARY KEY (consumer, topic)
) WITH (fillfactor = 50);

-- How many events each consumer never got, as far as an operator has accepted it.
CREATE TABLE posthouse.loss (
    consumer text NOT NULL,
    topic text NOT NULL,
    lost bigint NOT NULL,  -- accepted so far
    PRIMARY KEY (consumer, topic)
);

-- What could not be applied. Functions are given whole rows of it: the order of the columns counts.
CREATE TABLE posthouse.held (
    id bigint GENERATED ALWAYS AS IDENTITY,  -- in the order of coming
    consumer text NOT NULL,
    topic text NOT NULL,
    tenant text NOT NULL,
    key text,
    sequence bigint,
    lineage integer NOT NULL,
    event_id text NOT NULL,
    digest bytea NOT NULL,
    time double precision NOT NULL,  -- of the event, as the broker has it
    state text NOT NULL,  -- retrying, gap, blocked, dead, quarantined or skipped
    type text NOT NULL,
    headers text,
    body bytea NOT NULL,
    attempts integer NOT NULL,  -- runs that were begun
    next_at double precision NOT NULL,  -- of the next run; of a gap: its deadline
    first_at double precision NOT NULL,  -- when it was held
    last_at double precision NOT NULL,  -- of the last change
    reason text NOT NULL,  -- why, in words
    error text NOT NULL,  -- the last error
    stack text NOT NULL,  -- where that came from
    turn bigint NOT NULL DEFAULT 0,  -- grows with every change: one that was decided on an older row has no effect
    fingerprint text NOT NULL DEFAULT '',  -- the same for alike failures; empty while nothing failed
    correlation text,  -- the story that it is part of; NULL where nobody could read it
    PRIMARY KEY (tenant, id)
);

CREATE INDEX held_by_id ON posthouse.held (id);

-- For lists of some kind, and for the oldest of each kind: an index that is read in leaps from kind to kind.
CREATE INDEX held_by_kind ON posthouse.held (consumer, topic, state, id);

CREATE INDEX held_event_id ON posthouse.held (event_id);

CREATE INDEX held_key ON posthouse.held (key, id) WHERE key IS NOT NULL;

CREATE INDEX held_correlation ON posthouse.held (correlation, id) WHERE correlation IS NOT NULL;

-- For lists of alike failures, and of some tenants: read in leaps too.
CREATE INDEX held_failure ON posthouse.held (fingerprint, consumer, state, id);

CREATE INDEX held_of_tenant ON posthouse.held (tenant, consumer, state, fingerprint, id);

-- At most one event of a number keeps its key waiting: another one with that number is a fork.
CREATE UNIQUE INDEX held_waiting ON posthouse.held (tenant, consumer, topic, key, sequence)
    WHERE sequence IS NOT NULL AND state IN ('retrying', 'gap', 'blocked', 'dead');

CREATE UNIQUE INDEX held_ordered ON posthouse.held (tenant, consumer, topic, key, sequence, event_id)
    WHERE sequence IS NOT NULL;

CREATE UNIQUE INDEX held_unordered ON posthouse.held (tenant, consumer, event_id) WHERE sequence IS NULL;

CREATE INDEX held_next_at ON posthouse.held (consumer, state, next_at);

-- Those that were given up leave when their time is over.
CREATE INDEX held_skipped ON posthouse.held (last_at, id) WHERE state = 'skipped';


-- Sagas

-- Where each stands. Whoever takes a turn locks its row. Most updates touch no indexed column and stay in the page.
CREATE TABLE posthouse.saga (
    number bigint GENERATED ALWAYS AS IDENTITY,  -- in the order of starting
    tenant text NOT NULL,
    saga text NOT NULL,  -- the name of its kind
    id text NOT NULL,  -- what it is about
    attempt integer NOT NULL,  -- which of those with this id, from 1 on
    status text NOT NULL,  -- running, compensating, completed, …
    turn integer NOT NULL,  -- how many it has taken
    reason text NOT NULL,  -- why it stands so
    correlation text,  -- of all that it says
    parent_saga text,  -- the saga in whose turn it was started
    parent_id text,  -- its id
    parent_attempt integer,  -- its attempt
    started_at double precision NOT NULL,  -- first turn
    changed_at double precision NOT NULL,  -- last turn
    ended_at double precision,  -- NULL while it is not over
    purged_at double precision,  -- since when only this row is left of it, a tombstone
    shape text,  -- what steps, deadlines and fields it has, as a hash; NULL before its first turn
    progress text NOT NULL,  -- steps done and deadlines armed, as JSON
    state text NOT NULL,  -- its fields, as JSON
    PRIMARY KEY (tenant, saga, id, attempt)
) WITH (fillfactor = 70);

CREATE INDEX saga_by_number ON posthouse.saga (number) WHERE purged_at IS NULL;

CREATE INDEX saga_status ON posthouse.saga (saga, status, number) WHERE purged_at IS NULL;

CREATE INDEX saga_of_tenant ON posthouse.saga (tenant, saga, status, number) WHERE purged_at IS NULL;

CREATE INDEX saga_id ON posthouse.saga (id, number);

CREATE INDEX saga_correlation ON posthouse.saga (correlation, number) WHERE correlation IS NOT NULL;

-- For purging those that ended, and for deleting their tombstones.
CREATE INDEX saga_ended_at ON posthouse.saga (ended_at) WHERE ended_at IS NOT NULL AND purged_at IS NULL;

CREATE INDEX saga_purged ON posthouse.saga (ended_at) WHERE purged_at IS NOT NULL;

-- For the children of one.
CREATE INDEX saga_parent ON posthouse.saga (parent_saga, parent_id) WHERE parent_saga IS NOT NULL;

-- The fields that each is found by.
CREATE TABLE posthouse.saga_index (
    tenant text NOT NULL,
    number bigint NOT NULL,  -- of the saga
    field text NOT NULL,  -- its name
    value text NOT NULL,  -- as text, whatever the field holds
    PRIMARY KEY (tenant, number, field)
);

CREATE INDEX saga_index_value ON posthouse.saga_index (field, value, tenant, number);

-- The history of each: one record per turn, as JSON.
CREATE TABLE posthouse.saga_turn (
    tenant text NOT NULL,
    number bigint NOT NULL,  -- of the saga
    turn integer NOT NULL,  -- from 1 on
    record text NOT NULL,  -- what came in, what was said, and what changed
    PRIMARY KEY (tenant, number, turn)
);

-- Events that came too early for theirs. Their order, and what they wait for, is in the progress of the saga.
CREATE TABLE posthouse.saga_waiting (
    tenant text NOT NULL,
    number bigint NOT NULL,  -- of the saga
    event_id text NOT NULL,
    event bytea NOT NULL,  -- as it would be held, as MessagePack
    PRIMARY KEY (tenant, number, event_id)
);


-- Streams

-- The last version of each stream; whoever appends locks its row, so that versions follow commits.
CREATE TABLE posthouse.stream (
    tenant text NOT NULL,
    aggregate text NOT NULL,  -- the name of its kind
    stream text NOT NULL,  -- what it is about
    version bigint NOT NULL,  -- of its last event
    base bigint NOT NULL DEFAULT 0,  -- what is up to this version was deleted
    state text NOT NULL DEFAULT 'open',  -- open, archived or deleted
    PRIMARY KEY (tenant, aggregate, stream)
) WITH (fillfactor = 80);

-- What happened. A position is drawn under the lock of the stream. CACHE 1: a session that keeps numbers in stock would
-- give a later event a lower one. The transaction tells who reads everything what was committed since he last looked.
CREATE TABLE posthouse.stream_event (
    position bigint GENERATED ALWAYS AS IDENTITY (CACHE 1),  -- grows along a stream
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),  -- the transaction
    tenant text NOT NULL,
    aggregate text NOT NULL,  -- the name of its kind
    stream text NOT NULL,  -- what it is about
    version bigint NOT NULL,  -- from 1 on, without gaps
    event_id text NOT NULL,
    type text NOT NULL,
    headers text,
    body bytea NOT NULL,
    PRIMARY KEY (tenant, aggregate, stream, version)
);

CREATE INDEX stream_event_by_position ON posthouse.stream_event (position);
CREATE INDEX stream_event_by_transaction ON posthouse.stream_event (xid);

-- What happened in streams that were archived: the same rows, out of the way. Whoever reads everything reads both.
CREATE TABLE posthouse.stream_archive (
    position bigint NOT NULL,  -- as it was
    xid xid8 NOT NULL,  -- as it was
    tenant text NOT NULL,
    aggregate text NOT NULL,  -- the name of its kind
    stream text NOT NULL,  -- what it is about
    version bigint NOT NULL,  -- from 1 on, without gaps
    event_id text NOT NULL,
    type text NOT NULL,
    headers text,
    body bytea NOT NULL,
    PRIMARY KEY (tenant, aggregate, stream, version)
);

CREATE INDEX stream_archive_by_position ON posthouse.stream_archive (position);
CREATE INDEX stream_archive_by_transaction ON posthouse.stream_archive (xid);

-- What streams came to, as a cache: one for each.
CREATE TABLE posthouse.snapshot (
    tenant text NOT NULL,
    aggregate text NOT NULL,  -- the name of its kind
    stream text NOT NULL,  -- what it is about
    version bigint NOT NULL,  -- at which it was kept
    shape text NOT NULL,  -- how the state was written
    state bytea NOT NULL,  -- what the stream came to
    PRIMARY KEY (tenant, aggregate, stream)
);


-- Projections

-- The generations of read models. Nothing of a tenant is in it.
CREATE TABLE posthouse.generation (
    projection text NOT NULL,  -- the name of the read model
    number integer NOT NULL,  -- never given twice
    version integer NOT NULL,  -- that of the code that fills it
    state text NOT NULL,  -- building, live or retired
    source text NOT NULL,  -- first, log or streams: where its events come from
    phase text NOT NULL,  -- begun, bulk, closing or following
    tables text[] NOT NULL,  -- their names, in the order in which they were made
    cursor text NOT NULL,  -- where the bulk read goes on
    read bigint NOT NULL,  -- events that the bulk read has handed over
    owner text NOT NULL,  -- who fills one that is being built
    until double precision NOT NULL,  -- until when
    made_at double precision NOT NULL,  -- when it began
    live_at double precision NOT NULL,  -- when it was first read; 0: not yet
    retired_at double precision NOT NULL,  -- when another took its place; 0: not yet
    drop_at double precision,  -- when a retired one may go; NULL: never by itself
    event_at double precision NOT NULL,  -- the time of the last event applied; 0: none yet
    applied_at double precision NOT NULL,  -- when the last event was applied
    history text NOT NULL DEFAULT 'unknown',  -- or, once it was looked at, whether it has all that ever happened: 'whole', 'partial'
    effects text[] NOT NULL DEFAULT '{}',  -- the events of which it notes whether their effects were said
    PRIMARY KEY (projection, number)
) WITH (fillfactor = 50);

-- One that is read and one that is being built, at most.
CREATE UNIQUE INDEX generation_state ON posthouse.generation (projection, state) WHERE state <> 'retired';

-- The last number that a generation of a projection got: none is given twice, whatever becomes of the generation.
CREATE TABLE posthouse.generation_number (
    projection text PRIMARY KEY,  -- the name of the read model
    last integer NOT NULL  -- given last
);

-- What read models say of events: said once for each event, whichever generation applies it.
CREATE TABLE posthouse.effect (
    position bigint GENERATED ALWAYS AS IDENTITY,  -- in this order they are said
    tenant text NOT NULL,
    projection text NOT NULL,  -- the name of the read model
    event_id text NOT NULL,
    number integer NOT NULL,  -- 0: it was said; else the generation that would have said it, and leaves it to its swap
    noted_at double precision NOT NULL,  -- when
    facts text,  -- what is left to the swap, as JSON
    PRIMARY KEY (tenant, projection, event_id, number)
);

CREATE INDEX effect_noted_at ON posthouse.effect (noted_at);
CREATE INDEX effect_left ON posthouse.effect (projection, number) WHERE number > 0;

-- Up to which version each stream was read in bulk: what comes again from the broker is known by it.
CREATE TABLE posthouse.overlap (
    tenant text NOT NULL,
    projection text NOT NULL,  -- the name of the read model
    number integer NOT NULL,  -- of its generation
    aggregate text NOT NULL,  -- the name of its kind
    stream text NOT NULL,  -- what it is about
    version bigint NOT NULL,  -- read in bulk up to here
    PRIMARY KEY (tenant, projection, number, aggregate, stream)
);
