-- What a poll tells beside the rows that it found; `kind` says which of the others are given:
--   drawn: ids up to `floor` are drawn already; `s2` is the snapshot in which everything was looked at, and the column `stuck`
--     says whether there are rows that the broker refused;
--   whole: the rows that follow are all that is new for these shards, which stand at `s1`, up to `s2`: they may be moved there;
--   more: there is more than was asked for, from this shard on;
--   behind: some shards have a backlog, and nothing was looked at;
--   backlog: no rows, but what `page` reads: up to `s2`, behind `last_id`, up to `hi_id`, of these shards, each with its own `s1`.
--     `number` is NULL when it is still to be opened.
CREATE TYPE posthouse.poll_mark AS (
    kind text, shards smallint[], s1 pg_snapshot[], s2 pg_snapshot, number bigint, last_id bigint, hi_id bigint, floor bigint
);

-- Refuse to look for what is new where a snapshot does not tell, or for shards that were leased in another run.
CREATE FUNCTION posthouse.check_poll(run text) RETURNS void LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION 'this server is a standby, whose snapshots do not tell what is open' USING ERRCODE = '25006';
    END IF;
    IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
        RAISE EXCEPTION 'a poll inside a transaction that has written would count its own rows as seen'
            USING ERRCODE = 'PH003';
    END IF;
    PERFORM posthouse.be_in(run);
END $$;

-- The first mark of a poll.
CREATE FUNCTION posthouse.drawn_mark(looked_at pg_snapshot) RETURNS posthouse.poll_mark LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN ROW('drawn', NULL, NULL, looked_at, NULL, NULL, NULL,
        coalesce(pg_sequence_last_value('posthouse.outbox_id_seq'), 0))::posthouse.poll_mark;
END $$;

-- What is new in these shards, where that is little: as `poll`, but shards whose cursors stand at the same place are looked at
-- together, so that the cost is that of one shard. At most `most` rows and one more, which says that there is no telling what
-- else is new. The settings pin the plans: one made while the table was empty would read it whole when it is not.
CREATE FUNCTION posthouse.poll_fast(numbers smallint[], epochs bigint[], run text, most integer) RETURNS TABLE (
    mark posthouse.poll_mark, id bigint, topic text, tenant text, key text, sequence bigint, lineage integer, event_id text,
    headers text, body bytea, stuck boolean
) LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 50
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    now_s pg_snapshot := pg_current_snapshot();
    now_max xid8 := pg_snapshot_xmax(now_s);
    room integer := most + 1;
    found_rows integer;
    any_stuck boolean := EXISTS (SELECT 1 FROM posthouse.stuck);
    s1 pg_snapshot;
    open_since xid8;
    late xid8[];
    together record;
BEGIN
    PERFORM posthouse.check_poll(run);
    mark := posthouse.drawn_mark(now_s); stuck := any_stuck; RETURN NEXT;

    FOR together IN
        SELECT l.s1::text AS s1, array_agg(l.number) AS shards, bool_or(l.backlog IS NOT NULL) AS behind
        FROM posthouse.shard l WHERE l.number = ANY (numbers) AND l.epoch = epochs[array_position(numbers, l.number)]
        GROUP BY l.s1::text
    LOOP
        IF pg_snapshot_xmax(together.s1::pg_snapshot) > now_max THEN
            RAISE EXCEPTION 'the cursors come from another server: the next lease puts them right' USING ERRCODE = 'PH004';
        END IF;
        IF together.behind THEN
            mark := ROW('behind', together.shards, NULL, NULL, NULL, NULL, NULL, NULL); RETURN NEXT;
            RETURN;
        END IF;
        s1 := together.s1;
        mark := ROW('whole', together.shards, ARRAY[s1], now_s, NULL, NULL, NULL, NULL); RETURN NEXT;
        open_since := pg_snapshot_xmin(s1);
        -- Where a transaction has been open for long, those that ended since it began are too many to be passed over one by
        -- one: then the ones that were open are looked for by their numbers.
        late := NULL;
        IF pg_snapshot_xmax(s1)::text::bigint - open_since::text::bigint > 500 THEN
            open_since := pg_snapshot_xmax(s1);
            late := ARRAY(SELECT x FROM pg_snapshot_xip(s1) x WHERE pg_visible_in_snapshot(x, now_s));
        END IF;
        RETURN QUERY
        SELECT NULL::posthouse.poll_mark, o.id, o.topic, o.tenant, o.key, o.sequence, o.lineage, o.event_id, o.headers, o.body,
            any_stuck AND posthouse.is_stuck(o.id, o.topic, o.tenant, o.key)
        FROM posthouse.outbox o
        WHERE o.shard = ANY (together.shards) AND o.xid >= open_since AND o.xid < now_max
            AND NOT pg_visible_in_snapshot(o.xid, s1)
        LIMIT room;
        GET DIAGNOSTICS found_rows = ROW_COUNT;
        room := room - found_rows;
        CONTINUE WHEN coalesce(cardinality(late), 0) = 0;
        RETURN QUERY
        SELECT NULL::posthouse.poll_mark, o.id, o.topic, o.tenant, o.key, o.sequence, o.lineage, o.event_id, o.headers, o.body,
            any_stuck AND posthouse.is_stuck(o.id, o.topic, o.tenant, o.key)
        FROM posthouse.outbox o WHERE o.shard = ANY (together.shards) AND o.xid = ANY (late)
        LIMIT room;
        GET DIAGNOSTICS found_rows = ROW_COUNT;
        room := room - found_rows;
    END LOOP;
END $$;

-- What is new in these shards: visible now, and not in the snapshot to which the shard was dealt with; at most so many rows.
-- The cursors are read by the same statement. With `tidy` a shard is named as whole also where nothing is new for it, but for
-- others. Backlogs with numbers up to `after` have their turn once more when all others had theirs.
-- `known` is an id from before this statement up to which all were drawn. `run`: in which the shards were leased, as everywhere below.
-- The settings pin the plans: one made while the table was empty would read it whole when it is not.
CREATE FUNCTION posthouse.poll(
    numbers smallint[], epochs bigint[], run text, most integer, tidy boolean, after bigint, known bigint
) RETURNS TABLE (
    mark posthouse.poll_mark, id bigint, topic text, tenant text, key text, sequence bigint, lineage integer, event_id text,
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
    shard_cursor record;
    open record;
BEGIN
    PERFORM posthouse.check_poll(run);
    IF EXISTS (SELECT 1 FROM posthouse.shard l WHERE l.number = ANY (numbers) AND pg_snapshot_xmax(l.s1) > now_max) THEN
        RAISE EXCEPTION 'the cursors come from another server: the next lease puts them right' USING ERRCODE = 'PH004';
    END IF;
    any_stuck := EXISTS (SELECT 1 FROM posthouse.stuck);
    mark := posthouse.drawn_mark(now_s); stuck := any_stuck; RETURN NEXT;

    SELECT min(l.backlog) AS number INTO open
    FROM unnest(numbers, epochs) AS w (number, epoch)
    JOIN posthouse.shard l ON l.number = w.number AND l.epoch = w.epoch AND l.backlog > after;

    IF open.number IS NULL THEN
        FOR shard_cursor IN
            SELECT l.number, l.s1
            FROM unnest(numbers, epochs) WITH ORDINALITY AS w (number, epoch, place)
            CROSS JOIN LATERAL (SELECT * FROM posthouse.shard k WHERE k.number = w.number AND k.epoch = w.epoch) l
            WHERE l.backlog IS NULL AND (
                EXISTS (SELECT 1 FROM posthouse.outbox o
                    WHERE o.shard = l.number AND o.xid >= pg_snapshot_xmax(l.s1) AND o.xid < now_max)
                OR EXISTS (SELECT 1 FROM pg_snapshot_xip(l.s1) x WHERE pg_visible_in_snapshot(x, now_s))
                OR (tidy AND l.floor < known - 10000))
            ORDER BY w.place
        LOOP
            SELECT count(*) INTO found_rows FROM (
                (SELECT 1 FROM posthouse.outbox o
                WHERE o.shard = shard_cursor.number AND o.xid >= pg_snapshot_xmax(shard_cursor.s1) AND o.xid < now_max
                LIMIT room + 1)
                UNION ALL
                (SELECT 1 FROM pg_snapshot_xip(shard_cursor.s1) x
                CROSS JOIN LATERAL (SELECT 1 FROM posthouse.outbox o WHERE o.shard = shard_cursor.number AND o.xid = x) y
                WHERE pg_visible_in_snapshot(x, now_s) LIMIT room + 1)) few;
            IF found_rows > room THEN
                gave := true;
                IF room < most THEN
                    mark := ROW('more', ARRAY[shard_cursor.number], NULL, NULL, NULL, NULL, NULL, NULL);
                ELSE
                    mark := posthouse.opening(numbers, epochs, now_s, known, least(most, 100), shard_cursor.number);
                END IF;
                RETURN NEXT;
                EXIT;
            END IF;
            CONTINUE WHEN found_rows = 0 AND NOT tidy;
            gave := true;
            mark := ROW('whole', ARRAY[shard_cursor.number], ARRAY[shard_cursor.s1], now_s, NULL, NULL, NULL, NULL); RETURN NEXT;
            RETURN QUERY
            SELECT NULL::posthouse.poll_mark, z.id, z.topic, z.tenant, z.key, z.sequence, z.lineage, z.event_id,
                z.headers, z.body, any_stuck AND posthouse.is_stuck(z.id, z.topic, z.tenant, z.key)
            FROM (
                SELECT o.* FROM posthouse.outbox o
                WHERE o.shard = shard_cursor.number AND o.xid >= pg_snapshot_xmax(shard_cursor.s1) AND o.xid < now_max
                UNION ALL
                SELECT y.* FROM pg_snapshot_xip(shard_cursor.s1) x
                CROSS JOIN LATERAL (SELECT o.* FROM posthouse.outbox o WHERE o.shard = shard_cursor.number AND o.xid = x) y
                WHERE pg_visible_in_snapshot(x, now_s)) z;
            room := room - found_rows;
        END LOOP;
        IF gave THEN
            RETURN;
        END IF;
        SELECT min(l.backlog) AS number INTO open
        FROM unnest(numbers, epochs) AS w (number, epoch)
        JOIN posthouse.shard l ON l.number = w.number AND l.epoch = w.epoch;
    END IF;

    IF open.number IS NOT NULL THEN
        SELECT 'backlog',
            ARRAY(SELECT l.number FROM posthouse.shard l WHERE l.backlog = b.number ORDER BY l.number),
            ARRAY(SELECT l.s1 FROM posthouse.shard l WHERE l.backlog = b.number ORDER BY l.number),
            b.s2, b.number, b.last_id, b.hi_id, b.floor
        INTO mark FROM posthouse.backlog b WHERE b.number = open.number;
        RETURN NEXT;
    END IF;
END $$;

-- The mark of a backlog that is to be opened, up to a snapshot, for the shard that asks for it and all that have more than
-- `few` new rows; those with less do not wait for it. Its ids are above the lowest floor, but for transactions that were open
-- then.
CREATE FUNCTION posthouse.opening(
    numbers smallint[], epochs bigint[], s2 pg_snapshot, known bigint, few integer, asking smallint
) RETURNS posthouse.poll_mark LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET enable_sort = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    shards smallint[];
    since pg_snapshot[];
    below bigint;
    late bigint;
    hi bigint;
BEGIN
    shards := ARRAY(SELECT l.number FROM posthouse.shard l
        WHERE l.backlog IS NULL AND l.epoch = epochs[array_position(numbers, l.number)] AND (l.number = asking
            OR few < (SELECT count(*) FROM (SELECT 1 FROM posthouse.outbox o
                WHERE o.shard = l.number AND o.xid >= pg_snapshot_xmax(l.s1) AND o.xid < pg_snapshot_xmax(s2)
                LIMIT few + 1) new))
        ORDER BY l.number);
    since := ARRAY(SELECT l.s1 FROM posthouse.shard l WHERE l.number = ANY (shards) ORDER BY l.number);
    SELECT min(l.floor) INTO below FROM posthouse.shard l WHERE l.number = ANY (shards);
    SELECT min(y.id) - 1 INTO late
    FROM posthouse.shard l CROSS JOIN LATERAL pg_snapshot_xip(l.s1) x
    CROSS JOIN LATERAL (SELECT o.id FROM posthouse.outbox o WHERE o.shard = l.number AND o.xid = x OFFSET 0) y
    WHERE l.number = ANY (shards) AND pg_visible_in_snapshot(x, s2);
    SELECT max(o.id) INTO hi FROM posthouse.outbox o;
    RETURN ROW('backlog', shards, since, s2, NULL, least(below, late), hi, coalesce(known, 0))::posthouse.poll_mark;
END $$;

-- The next rows of a backlog, in the order of ids. `since` has the s1 of each shard at the place of its number, and none where
-- the shard is not in it.
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
    shards smallint[] := ARRAY(SELECT (g.place - 1)::smallint FROM unnest(since) WITH ORDINALITY AS g (s1, place)
        WHERE g.s1 IS NOT NULL);
    any_stuck boolean := EXISTS (SELECT 1 FROM posthouse.stuck);
BEGIN
    PERFORM posthouse.be_in(run);
    RETURN QUERY
    SELECT o.id, o.topic, o.tenant, o.key, o.sequence, o.lineage, o.event_id, o.headers, o.body,
        any_stuck AND posthouse.is_stuck(o.id, o.topic, o.tenant, o.key)
    FROM posthouse.outbox o
    WHERE o.id > last AND o.id <= hi AND o.shard = ANY (shards)
        AND (o.xid < all_before OR pg_visible_in_snapshot(o.xid, s2))
        AND (o.xid >= new_from OR NOT pg_visible_in_snapshot(o.xid, since[o.shard + 1]))
    ORDER BY o.id LIMIT most;
END $$;
