"""The tables and functions of the log. `{s}` stands for the quoted name of its schema.

Locks are always taken in the order groups, members, heads, cursors, and rows of one table in the order of their key, so
that no two of these functions can wait for each other. Every call is one statement and one transaction: a process that is
paused holds no lock. Functions look rows up by key and never scan, whatever the planner believed when the tables were new.

Whatever one call tells (numbers of topics, versions, epochs, cursors) and another one takes goes with the run of the server
that told it. A crash or a failover may have lost what was told, and given it anew: then nothing is written, and the caller
asks again.
"""

from __future__ import annotations

VERSION = 1
# Asked of the catalogue itself: to_regclass() would answer from a cache that is older than the lock.
HAS_SCHEMA = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)"
HAS_LOG = """
    SELECT EXISTS (
        SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = 'log')"""
READ_VERSION = "SELECT version FROM {s}.log"
LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('posthouse log ' || $1, 0))"

TABLES = """
CREATE TABLE {s}.log (version int NOT NULL);
INSERT INTO {s}.log VALUES (1);

-- One row, which is gone after a crash and on a standby that was promoted: such tables are not in the WAL.
CREATE UNLOGGED TABLE {s}.run (one boolean PRIMARY KEY DEFAULT true CHECK (one), token text NOT NULL);

-- A topic's number of partitions is fixed when it is made: changing it would move keys and break their order.
CREATE TABLE {s}.topics (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    partitions int NOT NULL
);

-- The sequencer. Frames of a partition are numbered without gaps; `stored` is the last number, `pruned` the last one
-- deleted. Whoever publishes holds the row until its commit, so numbers become visible in their order.
CREATE TABLE {s}.heads (
    topic int NOT NULL,
    partition int NOT NULL,
    stored bigint NOT NULL DEFAULT 0,
    pruned bigint NOT NULL DEFAULT 0,
    stored_at timestamptz NOT NULL DEFAULT '-infinity',
    PRIMARY KEY (topic, partition)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Positions are drawn while the head is held and never cached, so within a partition they grow with the number.
CREATE SEQUENCE {s}.positions CACHE 1;
CREATE TABLE {s}.frames (
    number bigint NOT NULL,
    position bigint NOT NULL,
    stored_at timestamptz NOT NULL,
    topic int NOT NULL,
    partition int NOT NULL,
    id bytea NOT NULL,
    key bytea,
    headers bytea,
    body bytea NOT NULL,
    PRIMARY KEY (topic, partition, number)
);

-- `version` changes whenever the members of a group have something to look at: a join, a leave, a takeover, a seek.
CREATE TABLE {s}.groups (
    name text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
CREATE TABLE {s}.members (
    grp text COLLATE "C" NOT NULL,
    topic int NOT NULL,
    name text COLLATE "C" NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (grp, topic, name)
) WITH (fillfactor = 50);

-- Cursor and lease of one partition. `epoch` grows with every new owner and every seek, and every read and every ack
-- names the owner and the epoch it belongs to. `reach` is the owner's window, `touched` the last number that may have been
-- handed out, `run` the run of the server under which this is true: another one may have lost the end of what it knew. `done`
-- are numbers behind the cursor that were acknowledged when the last owner left; others up to `unsure` may have been dealt with
-- though nobody said so.
CREATE TABLE {s}.cursors (
    grp text COLLATE "C" NOT NULL,
    topic int NOT NULL,
    partition int NOT NULL,
    acked bigint NOT NULL,
    touched bigint NOT NULL,
    started bigint NOT NULL,
    epoch bigint NOT NULL DEFAULT 0,
    owner text COLLATE "C",
    reach bigint NOT NULL DEFAULT 0,
    run text,
    done bigint[] NOT NULL DEFAULT '{{}}',
    unsure bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (grp, topic, partition)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE INDEX cursors_of_partition ON {s}.cursors (topic, partition);
"""

RUNS = """
-- The run of the server, null when it has not been given a name yet. The time at which the server was started also tells
-- a folder that was copied back after an orderly stop.
CREATE FUNCTION {s}.current_run() RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
    found text;
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE read_only_sql_transaction USING MESSAGE = 'this server is a standby';
    END IF;
    SELECT r.token INTO found FROM {s}.run r WHERE r.one;
    RETURN found || ' ' || extract(epoch FROM pg_postmaster_start_time());
END $$;

-- The same, and it gets its name.
CREATE FUNCTION {s}.begin_run() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF {s}.current_run() IS NULL THEN
        INSERT INTO {s}.run (token) VALUES (gen_random_uuid()) ON CONFLICT DO NOTHING;
    END IF;
    RETURN {s}.current_run();
END $$;

CREATE FUNCTION {s}.require_run(of_run text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF of_run IS DISTINCT FROM {s}.current_run() THEN
        RAISE no_data_found USING MESSAGE = 'the server was restarted or replaced since it was asked: try again';
    END IF;
END $$;
"""

# One row of `publish` per partition in (topic_ids, partition_ids, counts), sorted; one per frame in the others, where
# `places` says which partition and `ranks` the how-manieth there. Times of a partition never go back, even if the clock
# does: a seek by time may then search by halves.
PUBLISHING = """
CREATE FUNCTION {s}.publish(
    topic_ids int[], partition_ids int[], counts int[],
    places int[], ranks int[], ids bytea[], keys bytea[], all_headers bytea[], bodies bytea[],
    of_run text
) RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    before bigint;
    befores bigint[] := '{{}}';
    moment timestamptz;
    moments timestamptz[] := '{{}}';
BEGIN
    PERFORM {s}.require_run(of_run);
    FOR i IN 1 .. cardinality(topic_ids) LOOP
        UPDATE {s}.heads h SET stored = h.stored + counts[i], stored_at = greatest(h.stored_at, clock_timestamp())
        WHERE h.topic = topic_ids[i] AND h.partition = partition_ids[i]
        RETURNING h.stored - counts[i], h.stored_at INTO STRICT before, moment;
        befores := befores || before;
        moments := moments || moment;
    END LOOP;
    INSERT INTO {s}.frames (number, position, stored_at, topic, partition, id, key, headers, body)
    SELECT befores[f.place] + f.rank, nextval('{s}.positions'), moments[f.place],
        topic_ids[f.place], partition_ids[f.place], f.id, f.key, f.headers, f.body
    FROM unnest(places, ranks, ids, keys, all_headers, bodies) AS f(place, rank, id, key, headers, body);
END $$;
"""

# Everything in one snapshot (STABLE): a frame comes only where the epoch is still the reader's, so a member that was
# paused and replaced hands out nothing that its heir does not know of. Row 0 carries the group's version, and 1 while this is
# still the run of the server that the reader knows, else 0 and nothing follows. The reader puts frames in order, which they
# nearly always are: a sort here would write large frames to the disk.
READING = """
CREATE FUNCTION {s}.read(
    of_group text, topic_ids int[], partition_ids int[], epochs bigint[], firsts bigint[], lasts bigint[],
    member text, of_run text
) RETURNS TABLE (
    place int, stored bigint, number bigint, "position" bigint, stored_at float8,
    id bytea, key bytea, headers bytea, body bytea
) LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    same boolean := of_run IS NOT DISTINCT FROM {s}.current_run();
BEGIN
    RETURN QUERY SELECT 0, g.version, same::int::bigint, NULL::bigint, NULL::float8,
        NULL::bytea, NULL::bytea, NULL::bytea, NULL::bytea FROM {s}.groups g WHERE g.name = of_group;
    IF NOT same THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT w.place::int, h.stored, f.number, f.position, extract(epoch FROM f.stored_at)::float8,
        f.id, f.key, f.headers, f.body
    FROM unnest(topic_ids, partition_ids, epochs, firsts, lasts)
        WITH ORDINALITY AS w (topic, partition, epoch, first, last, place)
    JOIN {s}.cursors c ON c.grp = of_group AND c.topic = w.topic AND c.partition = w.partition
        AND c.owner = member AND c.epoch = w.epoch
    JOIN {s}.heads h ON h.topic = w.topic AND h.partition = w.partition
    LEFT JOIN {s}.frames f ON f.topic = w.topic AND f.partition = w.partition AND f.number BETWEEN w.first AND w.last;
END $$;

-- Whether it is still the run of the server that the member knows: in another one nothing is written. A cursor never goes
-- past what is stored. An acknowledgement that a crash of the server undoes only repeats work; `durable` waits for the disk,
-- and so writes also what was written before: without a change there would be nothing to wait for.
CREATE FUNCTION {s}.ack(
    of_group text, topic_ids int[], partition_ids int[], epochs bigint[], numbers bigint[], durable boolean,
    member text, of_run text
) RETURNS boolean LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    IF of_run IS DISTINCT FROM {s}.current_run() THEN
        RETURN false;
    END IF;
    IF NOT durable THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    FOR i IN 1 .. cardinality(topic_ids) LOOP
        UPDATE {s}.cursors c SET acked = numbers[i] FROM {s}.heads h
        WHERE c.grp = of_group AND c.topic = topic_ids[i] AND c.partition = partition_ids[i]
            AND c.owner = member AND c.epoch = epochs[i] AND (c.acked < numbers[i] OR durable AND c.acked = numbers[i])
            AND h.topic = topic_ids[i] AND h.partition = partition_ids[i] AND h.stored >= numbers[i];
    END LOOP;
    RETURN true;
END $$;
"""

MEMBERSHIP = """
-- Heads are share-locked so that retention cannot delete what a new cursor points at.
CREATE FUNCTION {s}.add_group(of_group text, topic_ids int[], at_end boolean, of_run text)
RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    PERFORM {s}.require_run(of_run);
    INSERT INTO {s}.groups (name) VALUES (of_group) ON CONFLICT DO NOTHING;
    INSERT INTO {s}.cursors (grp, topic, partition, acked, touched, started, run)
    SELECT of_group, h.topic, h.partition, h.pruned, h.pruned, h.pruned, of_run FROM {s}.heads h
    WHERE h.topic = ANY (topic_ids) AND NOT EXISTS (
        SELECT FROM {s}.cursors c WHERE c.grp = of_group AND c.topic = h.topic AND c.partition = h.partition)
    ORDER BY h.topic, h.partition FOR SHARE OF h
    ON CONFLICT DO NOTHING;
    IF at_end THEN
        UPDATE {s}.cursors c SET acked = h.stored, touched = h.stored, started = h.stored FROM {s}.heads h
        WHERE h.topic = c.topic AND h.partition = c.partition
            AND c.grp = of_group AND c.topic = ANY (topic_ids) AND c.epoch = 0;
    END IF;
END $$;

-- Renew a lease by the database's clock, strike off the dead, and tell how the group stands: one row per living member
-- (partition is null) and one per cursor; none in another run of the server. A lease that reaches too far was given before
-- the clock was set back.
CREATE FUNCTION {s}.renew(of_group text, topic_ids int[], member text, lease float8, of_run text)
RETURNS TABLE (version bigint, topic int, partition int, name text, epoch bigint, acked bigint, touched bigint)
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    renewed int;
    struck int;
    present bigint;
    moment timestamptz;
BEGIN
    IF of_run IS DISTINCT FROM {s}.current_run() THEN
        RETURN;
    END IF;
    SELECT g.version INTO STRICT present FROM {s}.groups g WHERE g.name = of_group FOR UPDATE;
    moment := clock_timestamp();
    UPDATE {s}.members m SET until = moment + lease * interval '1 second'
    WHERE m.grp = of_group AND m.topic = ANY (topic_ids) AND m.name = member;
    GET DIAGNOSTICS renewed = ROW_COUNT;
    IF renewed < cardinality(topic_ids) THEN
        INSERT INTO {s}.members (grp, topic, name, until)
        SELECT of_group, t, member, moment + lease * interval '1 second' FROM unnest(topic_ids) t
        ON CONFLICT DO NOTHING;
    END IF;
    DELETE FROM {s}.members m
    WHERE m.grp = of_group AND NOT (m.until > moment AND m.until <= moment + 2 * lease * interval '1 second');
    GET DIAGNOSTICS struck = ROW_COUNT;
    IF struck > 0 OR renewed < cardinality(topic_ids) THEN
        present := present + 1;
        UPDATE {s}.groups g SET version = present WHERE g.name = of_group;
    ELSE
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    RETURN QUERY SELECT present, m.topic, NULL::int, m.name, NULL::bigint, NULL::bigint, NULL::bigint
        FROM {s}.members m WHERE m.grp = of_group;
    RETURN QUERY SELECT present, c.topic, c.partition, c.owner, c.epoch, c.acked, c.touched
        FROM {s}.cursors c WHERE c.grp = of_group ORDER BY c.topic, c.partition;
END $$;

CREATE FUNCTION {s}.give_back(
    of_group text, member text,
    topic_ids int[], partition_ids int[], epochs bigint[], numbers bigint[], reads bigint[], dones text[], doubts bigint[]
) RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    FOR i IN 1 .. cardinality(topic_ids) LOOP
        UPDATE {s}.cursors c SET owner = NULL, acked = numbers[i], touched = reads[i],
            done = dones[i]::bigint[], unsure = doubts[i]
        FROM {s}.heads h
        WHERE c.grp = of_group AND c.topic = topic_ids[i] AND c.partition = partition_ids[i]
            AND c.owner = member AND c.epoch = epochs[i]
            AND h.topic = topic_ids[i] AND h.partition = partition_ids[i] AND h.stored >= numbers[i];
    END LOOP;
END $$;

-- Give back and take over, if the group still stands as it did when this was planned, in the same run of the server (then
-- a last row, of nulls, says so); else nothing, and no row comes.
-- Where the one before did not give back, whatever it may have had in hand counts as touched; where the server did not
-- stay the same, all that is stored. A cursor behind the end of the log belongs to frames that were lost: nobody knows
-- which of those that are there now were read, so all of them come again.
CREATE FUNCTION {s}.settle(
    of_group text, planned bigint, member text, window_size bigint,
    give_topics int[], give_partitions int[], give_epochs bigint[], give_numbers bigint[], give_reads bigint[],
    give_dones text[], give_doubts bigint[], take_topics int[], take_partitions int[], of_run text
) RETURNS TABLE (topic int, partition int, epoch bigint, acked bigint, touched bigint, done bigint[], unsure bigint)
LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    IF of_run IS DISTINCT FROM {s}.current_run() THEN
        RETURN;
    END IF;
    UPDATE {s}.groups g SET version = planned + 1 WHERE g.name = of_group AND g.version = planned;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM {s}.give_back(
        of_group, member, give_topics, give_partitions, give_epochs, give_numbers, give_reads, give_dones, give_doubts);
    FOR i IN 1 .. cardinality(take_topics) LOOP
        RETURN QUERY UPDATE {s}.cursors c SET
            acked = CASE WHEN c.acked > h.stored THEN h.pruned ELSE c.acked END,
            touched = CASE
                WHEN c.acked > h.stored OR c.run IS DISTINCT FROM of_run THEN h.stored
                WHEN c.owner IS NULL THEN c.touched
                ELSE greatest(c.touched, c.acked + c.reach)
            END,
            done = CASE WHEN c.acked > h.stored OR c.run IS DISTINCT FROM of_run THEN '{{}}' ELSE c.done END,
            unsure = CASE
                WHEN c.acked > h.stored OR c.run IS DISTINCT FROM of_run THEN h.stored
                WHEN c.owner IS NULL THEN c.unsure
                ELSE greatest(c.unsure, c.acked + c.reach)
            END,
            owner = member, reach = window_size, epoch = c.epoch + 1, run = of_run
        FROM {s}.heads h
        WHERE c.grp = of_group AND c.topic = take_topics[i] AND c.partition = take_partitions[i]
            AND h.topic = take_topics[i] AND h.partition = take_partitions[i]
        RETURNING c.topic, c.partition, c.epoch, c.acked, c.touched, c.done, c.unsure;
    END LOOP;
    RETURN QUERY SELECT NULL::int, NULL::int, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint[], NULL::bigint;
END $$;

CREATE FUNCTION {s}.leave(
    of_group text, member text,
    give_topics int[], give_partitions int[], give_epochs bigint[], give_numbers bigint[], give_reads bigint[],
    give_dones text[], give_doubts bigint[], of_run text
) RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    UPDATE {s}.groups g SET version = g.version + 1 WHERE g.name = of_group;
    DELETE FROM {s}.members m WHERE m.grp = of_group AND m.name = member;
    IF of_run IS NOT DISTINCT FROM {s}.current_run() THEN
        PERFORM {s}.give_back(
            of_group, member, give_topics, give_partitions, give_epochs, give_numbers, give_reads, give_dones, give_doubts);
    END IF;
END $$;
"""

HISTORY = """
-- The first number of a partition, above `low`, that is at or after a position or a time; `high` + 1 when there is none.
CREATE FUNCTION {s}.first_at(of_topic int, of_partition int, low bigint, high bigint, at_position bigint, at_time timestamptz)
RETURNS bigint LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    middle bigint;
    found_number bigint;
    reached boolean;
BEGIN
    low := low + 1;
    high := high + 1;
    WHILE low < high LOOP
        middle := (low + high) / 2;
        SELECT f.number, coalesce(f.position >= at_position, f.stored_at >= at_time) INTO found_number, reached
        FROM {s}.frames f WHERE f.topic = of_topic AND f.partition = of_partition AND f.number BETWEEN middle AND high
        ORDER BY f.topic, f.partition, f.number LIMIT 1;
        IF found_number IS NULL OR reached THEN
            high := middle;
        ELSE
            low := found_number + 1;
        END IF;
    END LOOP;
    RETURN low;
END $$;

-- Heads are share-locked: nothing is stored or deleted meanwhile, so all that was ever handed out counts as touched.
CREATE FUNCTION {s}.seek(of_group text, of_topic int, at_position bigint, at_time timestamptz, of_run text)
RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    head record;
    before bigint;
BEGIN
    PERFORM {s}.require_run(of_run);
    INSERT INTO {s}.groups (name) VALUES (of_group) ON CONFLICT DO NOTHING;
    UPDATE {s}.groups g SET version = g.version + 1 WHERE g.name = of_group;
    FOR head IN SELECT h.partition, h.stored, h.pruned FROM {s}.heads h
        WHERE h.topic = of_topic ORDER BY h.topic, h.partition FOR SHARE
    LOOP
        before := {s}.first_at(of_topic, head.partition, head.pruned, head.stored, at_position, at_time) - 1;
        INSERT INTO {s}.cursors AS c (grp, topic, partition, acked, touched, unsure, started, epoch, run)
        VALUES (of_group, of_topic, head.partition, before, head.stored, head.stored, 0, 1, of_run)
        ON CONFLICT (grp, topic, partition) DO UPDATE
        SET acked = before, touched = head.stored, unsure = head.stored, reach = 0, done = '{{}}', epoch = c.epoch + 1;
    END LOOP;
END $$;

-- The last number of a partition that is old enough and acknowledged by every group.
CREATE FUNCTION {s}.passed(of_topic int, of_partition int, low bigint, high bigint, before timestamptz)
RETURNS bigint LANGUAGE sql SET enable_seqscan = off AS $$
    SELECT least(
        (SELECT coalesce(min(c.acked), high) FROM {s}.cursors c WHERE c.topic = of_topic AND c.partition = of_partition),
        {s}.first_at(of_topic, of_partition, low, high, NULL, before) - 1)
$$;

-- Decide what may go, up to `most` frames. The caller deletes it afterwards, when no head is held. A head is locked only
-- where there is something to delete, and one that somebody publishes to is left for the next time.
CREATE FUNCTION {s}.retire(retention float8, most bigint)
RETURNS TABLE (topic int, partition int, upto bigint) LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    head record;
    before timestamptz := clock_timestamp() - retention * interval '1 second';
    total bigint := 0;
BEGIN
    FOR head IN SELECT h.topic, h.partition, h.stored, h.pruned FROM {s}.heads h
        WHERE h.pruned < h.stored ORDER BY h.topic, h.partition
    LOOP
        CONTINUE WHEN {s}.passed(head.topic, head.partition, head.pruned, head.stored, before) <= head.pruned;
        SELECT h.topic, h.partition, h.stored, h.pruned INTO head FROM {s}.heads h
        WHERE h.topic = head.topic AND h.partition = head.partition FOR NO KEY UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        topic := head.topic;
        partition := head.partition;
        upto := {s}.passed(topic, partition, head.pruned, head.stored, before);
        upto := least(upto, head.pruned + most - total);
        CONTINUE WHEN upto <= head.pruned;
        UPDATE {s}.heads h SET pruned = upto WHERE h.topic = head.topic AND h.partition = head.partition;
        total := total + upto - head.pruned;
        RETURN NEXT;
        EXIT WHEN total >= most;
    END LOOP;
END $$;
"""

MAKE = (TABLES, RUNS, PUBLISHING, READING, MEMBERSHIP, HISTORY)

# What the adapter calls. The statements end in one round trip each.

ADD_TOPICS = """
    WITH made AS (
        INSERT INTO {s}.topics (name, partitions) SELECT t, $2 FROM unnest($1::text[]) t
        ON CONFLICT DO NOTHING RETURNING id, partitions)
    INSERT INTO {s}.heads (topic, partition) SELECT id, p FROM made, generate_series(0, made.partitions - 1) p"""
# The run of the server, and what of these topics is there.
TOPICS = """
    SELECT r.run, t.name, t.id, t.partitions FROM (SELECT {s}.begin_run() AS run) r
    LEFT JOIN {s}.topics t ON t.name = ANY ($1::text[])"""
TOPIC_NAMES = "SELECT name FROM {s}.topics ORDER BY name LIMIT 1000"
PUBLISH = "SELECT {s}.publish($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
READ = "SELECT * FROM {s}.read($1, $2, $3, $4, $5, $6, $7, $8)"
ACK = "SELECT {s}.ack($1, $2, $3, $4, $5, $6, $7, $8)"
ADD_GROUP = "SELECT {s}.add_group($1, $2, $3, $4)"
RENEW = "SELECT * FROM {s}.renew($1, $2, $3, $4, $5)"
SETTLE = "SELECT * FROM {s}.settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"
LEAVE = "SELECT {s}.leave($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
SEEK = "SELECT {s}.seek($1, $2, $3, to_timestamp($4::float8), $5)"
# Frames that are there and not acknowledged, of a head `h` and a cursor `c`, and how many of them may have been dealt with: the
# numbers of those that somebody deleted by hand are in the range as well. Without a cursor all that are there.
UNREAD = """
    CROSS JOIN LATERAL (SELECT greatest(coalesce(c.acked, h.pruned), h.pruned) AS low,
        coalesce(CASE WHEN c.owner IS NULL THEN c.unsure ELSE greatest(c.unsure, c.acked + c.reach) END, 0) AS doubt) b
    CROSS JOIN LATERAL (SELECT count(*) AS there, count(*) FILTER (WHERE f.number <= b.doubt) AS unsure FROM {s}.frames f
        WHERE f.topic = h.topic AND f.partition = h.partition AND f.number > b.low) f
    CROSS JOIN LATERAL (SELECT count(*) AS done, count(*) FILTER (WHERE d.number <= b.doubt) AS sure FROM unnest(c.done) n
        JOIN {s}.frames d ON d.topic = h.topic AND d.partition = h.partition AND d.number = n WHERE n > b.low) d"""
PROGRESS = f"""
    SELECT t.name, sum(h.stored)::bigint AS stored,
        sum(f.there - d.done)::bigint AS pending, sum(f.unsure - d.sure)::bigint AS unsure,
        bool_or(coalesce(c.started, h.pruned) > 0 OR c.acked < h.pruned) AS truncated,
        coalesce(bool_or(c.acked < h.pruned), false) AS dropped,
        bool_and(coalesce(c.started, h.pruned) = 0) AS whole,
        array_agg(f.there - d.done ORDER BY h.partition) AS behind,
        greatest(0, coalesce(extract(epoch FROM clock_timestamp() - min(o.stored_at)), 0))::float8 AS oldest
    FROM {{s}}.topics t JOIN {{s}}.heads h ON h.topic = t.id
    LEFT JOIN {{s}}.cursors c ON c.grp = $1 AND c.topic = h.topic AND c.partition = h.partition {UNREAD}
    LEFT JOIN LATERAL (SELECT o.stored_at FROM {{s}}.frames o WHERE o.topic = h.topic AND o.partition = h.partition
        AND o.number > b.low AND o.number <> ALL (coalesce(c.done, '{{{{}}}}')) ORDER BY o.number LIMIT 1) o ON true
    WHERE t.name = ANY ($2::text[]) GROUP BY t.name"""
RETIRE = "SELECT * FROM {s}.retire($1, $2)"
# What the head says is gone, not what was decided a statement ago: this may be another server by now, with other frames.
DELETE = """
    WITH gone AS (
        DELETE FROM {s}.frames f USING {s}.heads h
        WHERE f.topic = $1 AND f.partition = $2 AND h.topic = $1 AND h.partition = $2
            AND f.number <= h.pruned AND f.number <= $3
        RETURNING 1)
    SELECT count(*) FROM gone"""
SETTINGS = """
    SELECT current_setting('synchronous_commit') AS synchronous_commit, current_setting('fsync') AS fsync,
        current_setting('full_page_writes') AS full_page_writes,
        current_setting('synchronous_standby_names') AS standbys,
        current_setting('default_transaction_isolation') AS isolation"""
