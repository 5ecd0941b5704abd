-- A backlog is read in the order of ids over all lanes at once, as the rows lie in the table: lane by lane, every row would
-- be looked up where its neighbours are not. How far a backlog was read is one row, whatever the number of its lanes.
DROP FUNCTION posthouse.poll(smallint[], bigint[], integer, boolean);
DROP FUNCTION posthouse.settle(text, double precision, smallint[], bigint[], smallint[], text[], text[], bigint[], text[],
    text[], bigint[], bigint[], text[], bigint[]);

-- Ids need no lane before them any more.
DROP INDEX posthouse.outbox_by_id;
CREATE INDEX outbox_by_id ON posthouse.outbox (id);

-- What is visible in `s2`, and for each of its lanes not in the lane's `s1`, is read page by page: up to `last_id` so far, up
-- to `hi_id` in all. `floor` is for its lanes once it was read.
CREATE TABLE posthouse.backlog (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    s2 pg_snapshot NOT NULL,
    last_id bigint NOT NULL,
    hi_id bigint NOT NULL,
    floor bigint NOT NULL
) WITH (fillfactor = 20);

-- `floor`: transactions that began after `s1` draw ids above it, so that nobody need look for the first.
ALTER TABLE posthouse.lane ADD COLUMN backlog bigint, ADD COLUMN floor bigint NOT NULL DEFAULT 0;

DO $$
DECLARE
    open record;
BEGIN
    FOR open IN SELECT * FROM posthouse.lane l WHERE l.s2 IS NOT NULL LOOP
        INSERT INTO posthouse.backlog (s2, last_id, hi_id, floor) VALUES (open.s2, open.last_id, open.hi_id, 0);
        UPDATE posthouse.lane l SET backlog = (SELECT max(b.number) FROM posthouse.backlog b) WHERE l.number = open.number;
    END LOOP;
END $$;

ALTER TABLE posthouse.lane DROP COLUMN s2, DROP COLUMN last_id, DROP COLUMN hi_id;

-- What is new in these lanes: visible now, and not in the snapshot to which the lane was dealt with; at most so many rows.
-- The cursors are read by the same statement. Beside rows come marks, whose id is NULL:
--   whole|s1|s2: the rows of this lane are all that is new up to snapshot s2, so it may be moved there; with `tidy` also
--     where nothing is new for it, but for others;
--   more: there is more than was asked for;
--   backlog|number|s2|last_id|hi_id|floor|lanes|their s1: no rows, but what `page` reads. The number is empty when it is
--     still to be opened; those with numbers up to `after` have their turn once more when all others had theirs;
--   drawn|id: ids up to this one are drawn already.
-- `known` is such an id from before this statement. `run`: in which the lanes were leased, as everywhere below.
-- The settings pin the plans: one made while the table was empty would read it whole when it is not.
CREATE FUNCTION posthouse.poll(
    numbers smallint[], epochs bigint[], run text, most integer, tidy boolean, after bigint, known bigint
) RETURNS TABLE (
    mark text, lane smallint, id bigint, topic text, tenant text, key text, sequence bigint, lineage integer, event_id text,
    headers text, body bytea, stuck boolean
) LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 500
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET enable_sort = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    now_s pg_snapshot := pg_current_snapshot();
    now_max xid8 := pg_snapshot_xmax(now_s);
    room integer := most;
    found_rows integer;
    any_stuck boolean;
    gave boolean := false;
    lane_cursor record;
    open record;
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION 'this server is a standby, whose snapshots do not tell what is open' USING ERRCODE = '25006';
    END IF;
    IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
        RAISE EXCEPTION 'a poll inside a transaction that has written would count its own rows as seen'
            USING ERRCODE = 'PH003';
    END IF;
    PERFORM posthouse.be_in(run);
    IF EXISTS (SELECT 1 FROM posthouse.lane l WHERE l.number = ANY (numbers) AND pg_snapshot_xmax(l.s1) > now_max) THEN
        RAISE EXCEPTION 'the cursors come from another server: the next lease puts them right' USING ERRCODE = 'PH004';
    END IF;
    any_stuck := EXISTS (SELECT 1 FROM posthouse.stuck);
    mark := 'drawn|' || coalesce(pg_sequence_last_value('posthouse.outbox_id_seq'), 0); RETURN NEXT;

    SELECT min(l.backlog) AS number INTO open
    FROM unnest(numbers, epochs) AS w (number, epoch)
    JOIN posthouse.lane l ON l.number = w.number AND l.epoch = w.epoch AND l.backlog > after;

    IF open.number IS NULL THEN
        FOR lane_cursor IN
            SELECT l.number, l.s1
            FROM unnest(numbers, epochs) WITH ORDINALITY AS w (number, epoch, place)
            CROSS JOIN LATERAL (SELECT * FROM posthouse.lane k WHERE k.number = w.number AND k.epoch = w.epoch) l
            WHERE l.backlog IS NULL AND (
                EXISTS (SELECT 1 FROM posthouse.outbox o
                    WHERE o.lane = l.number AND o.xid >= pg_snapshot_xmax(l.s1) AND o.xid < now_max)
                OR EXISTS (SELECT 1 FROM pg_snapshot_xip(l.s1) x WHERE pg_visible_in_snapshot(x, now_s))
                OR (tidy AND l.floor < known - 10000))
            ORDER BY w.place
        LOOP
            lane := lane_cursor.number;
            SELECT count(*) INTO found_rows FROM (
                (SELECT 1 FROM posthouse.outbox o
                WHERE o.lane = lane_cursor.number AND o.xid >= pg_snapshot_xmax(lane_cursor.s1) AND o.xid < now_max
                LIMIT room + 1)
                UNION ALL
                (SELECT 1 FROM pg_snapshot_xip(lane_cursor.s1) x
                CROSS JOIN LATERAL (SELECT 1 FROM posthouse.outbox o WHERE o.lane = lane_cursor.number AND o.xid = x) y
                WHERE pg_visible_in_snapshot(x, now_s) LIMIT room + 1)) few;
            IF found_rows > room THEN
                gave := true;
                IF room < most THEN
                    mark := 'more'; RETURN NEXT;
                ELSE
                    mark := posthouse.opening(numbers, epochs, now_s, known, least(most, 100), lane_cursor.number); RETURN NEXT;
                END IF;
                EXIT;
            END IF;
            CONTINUE WHEN found_rows = 0 AND NOT tidy;
            gave := true;
            mark := concat_ws('|', 'whole', lane_cursor.s1, now_s); RETURN NEXT;
            RETURN QUERY
            SELECT NULL::text, lane_cursor.number, z.id, z.topic, z.tenant, z.key, z.sequence, z.lineage, z.event_id,
                z.headers, z.body, any_stuck AND posthouse.is_stuck(z.id, z.topic, z.tenant, z.key)
            FROM (
                SELECT o.* FROM posthouse.outbox o
                WHERE o.lane = lane_cursor.number AND o.xid >= pg_snapshot_xmax(lane_cursor.s1) AND o.xid < now_max
                UNION ALL
                SELECT y.* FROM pg_snapshot_xip(lane_cursor.s1) x
                CROSS JOIN LATERAL (SELECT o.* FROM posthouse.outbox o WHERE o.lane = lane_cursor.number AND o.xid = x) y
                WHERE pg_visible_in_snapshot(x, now_s)) z;
            room := room - found_rows;
        END LOOP;
        IF gave THEN
            RETURN;
        END IF;
        SELECT min(l.backlog) AS number INTO open
        FROM unnest(numbers, epochs) AS w (number, epoch)
        JOIN posthouse.lane l ON l.number = w.number AND l.epoch = w.epoch;
    END IF;

    IF open.number IS NOT NULL THEN
        SELECT concat_ws('|', 'backlog', b.number, b.s2, b.last_id, b.hi_id, b.floor,
            array_to_string(ARRAY(SELECT l.number FROM posthouse.lane l WHERE l.backlog = b.number ORDER BY l.number), ','),
            array_to_string(ARRAY(SELECT l.s1::text FROM posthouse.lane l WHERE l.backlog = b.number ORDER BY l.number), '/'))
        INTO mark FROM posthouse.backlog b WHERE b.number = open.number;
        RETURN NEXT;
    END IF;
END $$;

-- The mark of a backlog that is to be opened, up to a snapshot, for the lane that asks for it and all that have more than
-- `few` new rows; those with less do not wait for it. Its ids are above the lowest floor, but for transactions that were open
-- then.
CREATE FUNCTION posthouse.opening(
    numbers smallint[], epochs bigint[], s2 pg_snapshot, known bigint, few integer, asking smallint
) RETURNS text LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET enable_sort = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    lanes smallint[];
    since text;
    below bigint;
    late bigint;
    hi bigint;
BEGIN
    lanes := ARRAY(SELECT l.number FROM posthouse.lane l
        WHERE l.backlog IS NULL AND l.epoch = epochs[array_position(numbers, l.number)] AND (l.number = asking
            OR few < (SELECT count(*) FROM (SELECT 1 FROM posthouse.outbox o
                WHERE o.lane = l.number AND o.xid >= pg_snapshot_xmax(l.s1) AND o.xid < pg_snapshot_xmax(s2)
                LIMIT few + 1) new))
        ORDER BY l.number);
    since := array_to_string(
        ARRAY(SELECT l.s1::text FROM posthouse.lane l WHERE l.number = ANY (lanes) ORDER BY l.number), '/');
    SELECT min(l.floor) INTO below FROM posthouse.lane l WHERE l.number = ANY (lanes);
    SELECT min(y.id) - 1 INTO late
    FROM posthouse.lane l CROSS JOIN LATERAL pg_snapshot_xip(l.s1) x
    CROSS JOIN LATERAL (SELECT o.id FROM posthouse.outbox o WHERE o.lane = l.number AND o.xid = x OFFSET 0) y
    WHERE l.number = ANY (lanes) AND pg_visible_in_snapshot(x, s2);
    SELECT max(o.id) INTO hi FROM posthouse.outbox o;
    RETURN concat_ws('|', 'backlog', '', s2, least(below, late), hi, coalesce(known, 0), array_to_string(lanes, ','), since);
END $$;

-- The next rows of a backlog, in the order of ids. `since` has the s1 of each lane at the place of its number, and none where
-- the lane is not in it.
CREATE FUNCTION posthouse.page(
    run text, since pg_snapshot[], s2 pg_snapshot, last bigint, hi bigint, most integer
) RETURNS TABLE (
    id bigint, topic text, tenant text, key text, sequence bigint, lineage integer, event_id text, headers text, body bytea,
    stuck boolean
) LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 4000
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
SET plan_cache_mode = force_generic_plan SET work_mem = '32MB'
AS $$
#variable_conflict use_column
DECLARE
    -- Most rows are told by these two bounds, without a look at a snapshot.
    new_from xid8 := (SELECT max(pg_snapshot_xmax(s1)::text::numeric)::text::xid8 FROM unnest(since) s1);
    all_before xid8 := pg_snapshot_xmin(s2);
    lanes smallint[] := ARRAY(SELECT (g.place - 1)::smallint FROM unnest(since) WITH ORDINALITY AS g (s1, place)
        WHERE g.s1 IS NOT NULL);
    any_stuck boolean := EXISTS (SELECT 1 FROM posthouse.stuck);
BEGIN
    PERFORM posthouse.be_in(run);
    RETURN QUERY
    SELECT o.id, o.topic, o.tenant, o.key, o.sequence, o.lineage, o.event_id, o.headers, o.body,
        any_stuck AND posthouse.is_stuck(o.id, o.topic, o.tenant, o.key)
    FROM posthouse.outbox o
    WHERE o.id > last AND o.id <= hi AND o.lane = ANY (lanes)
        AND (o.xid < all_before OR pg_visible_in_snapshot(o.xid, s2))
        AND (o.xid >= new_from OR NOT pg_visible_in_snapshot(o.xid, since[o.lane + 1]))
    ORDER BY o.id LIMIT most;
END $$;

-- Move the cursors of some lanes if all are held and none has moved since it was read; count what was sent. The commit
-- need not be waited for: a crash that undoes it only repeats work. A floor that is not given stays: it still holds.
-- Returns 0, or NULL when the lanes are not held.
CREATE FUNCTION posthouse.settle(
    holder text, now_given double precision, numbers smallint[], epochs bigint[], run text, moved smallint[],
    s1_before text[], s1_after text[], known bigint, topics text[], counts bigint[]
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    moment double precision := coalesce(now_given, extract(epoch FROM clock_timestamp())::double precision);
    done integer;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    IF NOT posthouse.holds(holder, numbers, epochs, run, moment) THEN
        RETURN NULL;
    END IF;
    UPDATE posthouse.lane l SET s1 = v.s1_to::pg_snapshot, floor = greatest(l.floor, known)
    FROM unnest(moved, s1_before, s1_after) AS v (number, s1_was, s1_to)
    WHERE l.number = v.number AND l.owner = holder AND l.until > moment
        AND l.epoch = epochs[array_position(numbers, v.number)] AND l.backlog IS NULL AND l.s1::text = v.s1_was;
    GET DIAGNOSTICS done = ROW_COUNT;
    IF done <> cardinality(moved) THEN
        RAISE EXCEPTION 'a lane was moved or taken by another relay' USING ERRCODE = 'PH005';
    END IF;
    PERFORM posthouse.count_sent(moved, topics, counts);
    RETURN 0;
END $$;

-- The same for a page of a backlog, which is opened with its first page and closed with its last. Returns its number, 0 when
-- it is closed, NULL when the lanes are not held.
CREATE FUNCTION posthouse.settle_page(
    holder text, now_given double precision, numbers smallint[], epochs bigint[], run text, backlog bigint, page_s2 text,
    last_before bigint, last_after bigint, hi bigint, known bigint, lanes smallint[], s1_before text[], topics text[],
    counts bigint[]
) RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    moment double precision := coalesce(now_given, extract(epoch FROM clock_timestamp())::double precision);
    ends boolean := last_after >= hi;
    standing bigint := backlog;
    done integer;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    IF NOT posthouse.holds(holder, numbers, epochs, run, moment) THEN
        RETURN NULL;
    END IF;
    IF backlog IS NULL AND NOT ends THEN
        INSERT INTO posthouse.backlog (s2, last_id, hi_id, floor) VALUES (page_s2::pg_snapshot, last_after, hi, known)
        RETURNING number INTO standing;
    ELSIF NOT ends THEN
        UPDATE posthouse.backlog b SET last_id = last_after WHERE b.number = backlog AND b.last_id = last_before;
        GET DIAGNOSTICS done = ROW_COUNT;
    ELSIF backlog IS NOT NULL THEN
        DELETE FROM posthouse.backlog b WHERE b.number = backlog AND b.last_id = last_before;
        GET DIAGNOSTICS done = ROW_COUNT;
    END IF;
    IF done = 0 THEN
        RAISE EXCEPTION 'a backlog was read by another relay' USING ERRCODE = 'PH005';
    END IF;
    IF backlog IS NULL OR ends THEN
        UPDATE posthouse.lane l SET backlog = CASE WHEN ends THEN NULL ELSE standing END,
            s1 = CASE WHEN ends THEN page_s2::pg_snapshot ELSE l.s1 END,
            floor = CASE WHEN ends THEN greatest(l.floor, known) ELSE l.floor END
        FROM unnest(lanes, s1_before) AS v (number, s1_was)
        WHERE l.number = v.number AND l.owner = holder AND l.until > moment
            AND l.epoch = epochs[array_position(numbers, v.number)]
            AND l.backlog IS NOT DISTINCT FROM settle_page.backlog AND l.s1::text = v.s1_was;
        GET DIAGNOSTICS done = ROW_COUNT;
        IF done <> cardinality(lanes) THEN
            RAISE EXCEPTION 'a lane was moved or taken by another relay' USING ERRCODE = 'PH005';
        END IF;
    END IF;
    PERFORM posthouse.count_sent(lanes, topics, counts);
    RETURN CASE WHEN ends THEN 0 ELSE standing END;
END $$;

-- Count what was sent of each topic; in the row of the first lane, which no other relay writes.
CREATE FUNCTION posthouse.count_sent(lanes smallint[], topics text[], counts bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO posthouse.sent AS s (topic, lane, count)
    SELECT v.topic, (SELECT min(n) FROM unnest(lanes) n), v.count FROM unnest(topics, counts) AS v (topic, count)
    ON CONFLICT (topic, lane) DO UPDATE SET count = s.count + excluded.count;
END $$;

-- The tables were restored into another server, or another database: its transaction ids mean nothing to the cursors.
-- What was certainly sent goes, everything else is sent again, under a new lineage; nothing is lost.
CREATE OR REPLACE FUNCTION posthouse.recover() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    LOCK TABLE posthouse.outbox IN SHARE ROW EXCLUSIVE MODE;
    DELETE FROM posthouse.outbox o USING posthouse.lane l LEFT JOIN posthouse.backlog b ON b.number = l.backlog
    WHERE l.number = o.lane AND o.xid >= pg_snapshot_xmax(pg_current_snapshot())
        AND NOT EXISTS (SELECT 1 FROM posthouse.stuck s WHERE s.id = o.id)
        AND (pg_visible_in_snapshot(o.xid, l.s1)
            OR (b.s2 IS NOT NULL AND pg_visible_in_snapshot(o.xid, b.s2) AND o.id <= b.last_id));
    UPDATE posthouse.outbox SET xid = pg_current_xact_id();
    UPDATE posthouse.lane SET s1 = '1:1:', backlog = NULL, floor = 0, owner = NULL, until = 0, epoch = epoch + 1;
    DELETE FROM posthouse.backlog;
    DELETE FROM posthouse.member;
    UPDATE posthouse.meta m SET lineage = m.lineage + 1, system = p.system, timeline = p.timeline,
        database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    FROM posthouse.place() p;
END $$;

-- Renew what `holder` has, and take or give up lanes so that the relays that are alive hold equal shares. Relays take
-- turns here; lanes with an open backlog are taken first. A backlog of which somebody else has lanes too becomes two.
DROP FUNCTION posthouse.lease(text, double precision, double precision);

CREATE FUNCTION posthouse.lease(holder text, seconds double precision, now_given double precision)
RETURNS TABLE (number smallint, epoch bigint, run text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    moment double precision;
    share integer;
    mine integer;
    shared bigint;
    own bigint;
    -- One that ends later was given by a clock that was set back since.
    longest constant double precision := greatest(seconds, 3600);
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('posthouse.lease', 0));
    moment := coalesce(now_given, extract(epoch FROM clock_timestamp())::double precision);
    IF posthouse.incarnation() IS NULL OR posthouse.is_ahead() THEN
        PERFORM posthouse.begin_run();
    END IF;
    run := posthouse.incarnation();

    INSERT INTO posthouse.member (owner, until) VALUES (holder, moment + seconds)
    ON CONFLICT (owner) DO UPDATE SET until = excluded.until;
    DELETE FROM posthouse.member m WHERE m.until <= moment OR m.until > moment + longest;
    SELECT ceil(count(*)::numeric / (SELECT count(*) FROM posthouse.member)), count(*) FILTER (WHERE l.owner = holder)
    INTO share, mine FROM posthouse.lane l;
    UPDATE posthouse.lane l SET owner = NULL, until = 0 WHERE l.number IN (
        SELECT k.number FROM posthouse.lane k WHERE k.owner = holder ORDER BY k.number OFFSET share);
    UPDATE posthouse.lane l SET owner = holder, epoch = l.epoch + 1 WHERE l.number IN (
        SELECT k.number FROM posthouse.lane k WHERE k.owner IS NULL
            OR (k.owner <> holder AND (k.until <= moment OR k.until > moment + longest))
        ORDER BY k.backlog IS NULL, k.number LIMIT greatest(share - mine, 0) FOR UPDATE SKIP LOCKED);
    FOR shared IN
        SELECT DISTINCT l.backlog FROM posthouse.lane l JOIN posthouse.lane k ON k.backlog = l.backlog
        WHERE l.owner = holder AND k.owner IS DISTINCT FROM holder
    LOOP
        INSERT INTO posthouse.backlog (s2, last_id, hi_id, floor)
        SELECT b.s2, b.last_id, b.hi_id, b.floor FROM posthouse.backlog b WHERE b.number = shared
        RETURNING number INTO own;
        UPDATE posthouse.lane l SET backlog = own WHERE l.owner = holder AND l.backlog = shared;
    END LOOP;
    RETURN QUERY
    UPDATE posthouse.lane l SET until = moment + seconds WHERE l.owner = holder RETURNING l.number, l.epoch, run;
END $$;

-- What a row is written with, once it is sure that this is the database that the caller believes it to be. The transaction
-- has its id from here on: ids of rows are drawn after it, which is what a floor rests on.
CREATE FUNCTION posthouse.writing(identity text, lanes integer, OUT lineage integer, OUT slot smallint)
LANGUAGE plpgsql AS $$
DECLARE
    here record;
BEGIN
    PERFORM pg_current_xact_id();
    -- A commit that a crash may undo could have been published, and its number be given again.
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    SELECT m.identity, m.lanes, m.slot INTO STRICT here FROM posthouse.meta m;
    IF here.identity <> writing.identity THEN
        RAISE EXCEPTION 'this connection is to another database than the store' USING ERRCODE = 'PH001';
    END IF;
    IF here.lanes <> writing.lanes THEN
        RAISE EXCEPTION 'the outbox has % lanes, not %', here.lanes, writing.lanes USING ERRCODE = 'PH002';
    END IF;
    lineage := posthouse.current_lineage();
    slot := here.slot;
END $$;

-- Add one row without an intent, by far the most frequent: no sets, no sorting.
CREATE FUNCTION posthouse.append_one(
    identity text, lanes integer, lane smallint, topic text, tenant text, key text, numbered boolean, event_id text,
    headers text, body bytea
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    here record := posthouse.writing(identity, lanes);
    number bigint;
BEGIN
    IF append_one.numbered AND append_one.key IS NOT NULL THEN
        INSERT INTO posthouse.key AS k (topic, tenant, key, sequence)
        VALUES (append_one.topic, append_one.tenant, append_one.key, 1)
        ON CONFLICT ON CONSTRAINT key_pkey DO UPDATE SET sequence = k.sequence + 1 RETURNING k.sequence INTO number;
    END IF;
    INSERT INTO posthouse.outbox (lane, topic, tenant, key, sequence, lineage, event_id, headers, body, slot)
    VALUES (append_one.lane, append_one.topic, append_one.tenant, append_one.key, number, here.lineage,
            append_one.event_id, append_one.headers, append_one.body, here.slot);
END $$;

-- Add rows; one element of each array per row. Returns the event id that stands for each row, or NULL when each stands for
-- itself. `identity` and `lanes` are what the caller believes of this database. Locks are taken in one order everywhere:
-- intents, then keys, each sorted.
CREATE OR REPLACE FUNCTION posthouse.append(
    identity text, lanes integer, lane_numbers smallint[], topics text[], tenants text[], keys text[],
    numbered boolean[], event_ids text[], header_texts text[], bodies bytea[], intents text[],
    now_given double precision, remember double precision
) RETURNS text[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    here record;
    standing text[];
    fresh boolean[];
    intent record;
    moment double precision := coalesce(now_given, extract(epoch FROM clock_timestamp())::double precision);
BEGIN
    IF cardinality(event_ids) = 1 AND intents[1] IS NULL THEN
        PERFORM posthouse.append_one(identity, lanes, lane_numbers[1], topics[1], tenants[1], keys[1], numbered[1],
            event_ids[1], header_texts[1], bodies[1]);
        RETURN NULL;
    END IF;

    here := posthouse.writing(identity, lanes);
    fresh := array_fill(true, ARRAY[cardinality(event_ids)]);
    FOR intent IN
        SELECT g.topic, g.tenant, g.name, g.event_id, g.place::integer AS place
        FROM unnest(topics, tenants, intents, event_ids) WITH ORDINALITY AS g (topic, tenant, name, event_id, place)
        WHERE g.name IS NOT NULL ORDER BY g.tenant, g.topic, g.name, g.place
    LOOP
        INSERT INTO posthouse.idempotency AS i (tenant, topic, idempotency_key, event_id, until)
        VALUES (intent.tenant, intent.topic, intent.name, intent.event_id, moment + remember)
        ON CONFLICT (tenant, topic, idempotency_key) DO UPDATE SET event_id = excluded.event_id, until = excluded.until
        WHERE i.until <= moment;
        IF NOT FOUND THEN
            standing := coalesce(standing, event_ids);
            fresh[intent.place] := false;
            standing[intent.place] := (SELECT i.event_id FROM posthouse.idempotency i
                WHERE i.tenant = intent.tenant AND i.topic = intent.topic AND i.idempotency_key = intent.name);
        END IF;
    END LOOP;

    -- Each row waits for the number of its key, and with it for the key's lock, before its id is drawn.
    WITH given AS MATERIALIZED (
        SELECT g.*, g.numbered AND g.key IS NOT NULL AS counts
        FROM unnest(lane_numbers, topics, tenants, keys, numbered, event_ids, header_texts, bodies, fresh)
            WITH ORDINALITY AS g (lane, topic, tenant, key, numbered, event_id, headers, body, fresh, place)
        WHERE g.fresh
    ), numbers AS (
        INSERT INTO posthouse.key AS k (topic, tenant, key, sequence)
        SELECT g.topic, g.tenant, g.key, count(*) FROM given g WHERE g.counts
        GROUP BY g.topic, g.tenant, g.key ORDER BY g.topic, g.tenant, g.key
        ON CONFLICT (topic, tenant, key) DO UPDATE SET sequence = k.sequence + excluded.sequence
        RETURNING k.topic, k.tenant, k.key, k.sequence
    )
    INSERT INTO posthouse.outbox (lane, topic, tenant, key, sequence, lineage, event_id, headers, body, slot)
    SELECT g.lane, g.topic, g.tenant, g.key,
        n.sequence - count(*) OVER of_key + row_number() OVER (of_key ORDER BY g.place),
        here.lineage, g.event_id, g.headers, g.body, here.slot
    FROM given g LEFT JOIN numbers n ON g.counts AND n.topic = g.topic AND n.tenant = g.tenant AND n.key = g.key
    WINDOW of_key AS (PARTITION BY g.counts, g.topic, g.tenant, g.key)
    ORDER BY g.place;
    RETURN standing;
END $$;

-- Truncate a leaf if nothing in it is needed; whether that was done. First look at what is committed, without a lock. Then,
-- under the lock, for which nobody waits longer than its time, whether anything was committed since: a writer that is still
-- open, also a prepared one, keeps the lock from us. Stuck rows move to the leaf of kept ones.
CREATE OR REPLACE FUNCTION posthouse.empty(n integer) RETURNS boolean LANGUAGE plpgsql
SET lock_timeout = '20ms' SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    looked_at pg_snapshot;
    needed boolean;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'a leaf is emptied in a READ COMMITTED transaction: others do not see what was committed last'
            USING ERRCODE = 'PH003';
    END IF;
    IF NOT posthouse.may_truncate() OR NOT pg_try_advisory_xact_lock(hashtextextended('posthouse.empty', 0))
        OR n = (SELECT m.slot FROM posthouse.meta m) THEN
        RETURN false;
    END IF;
    looked_at := pg_current_snapshot();
    EXECUTE format($sql$
        SELECT EXISTS (SELECT 1 FROM posthouse.lane l LEFT JOIN posthouse.backlog b ON b.number = l.backlog CROSS JOIN LATERAL (
            SELECT 1 FROM posthouse.outbox o
            WHERE o.slot = %1$s AND o.lane = l.number AND o.xid >= pg_snapshot_xmin(l.s1)
                AND NOT pg_visible_in_snapshot(o.xid, l.s1)
                AND NOT coalesce(pg_visible_in_snapshot(o.xid, b.s2) AND o.id <= b.last_id, false) LIMIT 1) p)
        $sql$, n) INTO needed;
    IF needed THEN
        RETURN false;
    END IF;
    BEGIN
        EXECUTE format($sql$
            INSERT INTO posthouse.outbox (id, xid, lane, topic, tenant, key, sequence, lineage, event_id, headers, body, slot)
            OVERRIDING SYSTEM VALUE
            SELECT o.id, o.xid, o.lane, o.topic, o.tenant, o.key, o.sequence, o.lineage, o.event_id, o.headers, o.body, -1
            FROM posthouse.stuck s
            JOIN posthouse.outbox o ON o.slot = %1$s AND o.id = s.id
            $sql$, n);
        PERFORM posthouse.lock_leaf(n);
        EXECUTE format($sql$
            SELECT EXISTS (SELECT 1 FROM posthouse.lane l CROSS JOIN LATERAL (
                    SELECT 1 FROM posthouse.outbox o
                    WHERE o.slot = %1$s AND o.lane = l.number AND o.xid >= pg_snapshot_xmax($1) LIMIT 1) p)
                OR EXISTS (SELECT 1 FROM posthouse.lane l CROSS JOIN pg_snapshot_xip($1) x CROSS JOIN LATERAL (
                    SELECT 1 FROM posthouse.outbox o WHERE o.slot = %1$s AND o.lane = l.number AND o.xid = x LIMIT 1) p)
            $sql$, n) INTO needed USING looked_at;
        IF needed THEN
            RAISE lock_not_available;  -- undoes the copies as well
        END IF;
        PERFORM posthouse.truncate_leaf(n);
    EXCEPTION WHEN lock_not_available THEN
        RETURN false;
    END;
    RETURN true;
END $$;
