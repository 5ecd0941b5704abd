-- What is new in these lanes: visible now, and not in the snapshot to which the lane was dealt with; at most so many rows.
-- The cursors are read by the same statement. For each lane that gave rows, and with `tidy` for those whose cursor should
-- move all the same, comes a row with an id of NULL and a mark: kind|s1|s2|last_id|hi_id, where kind is
--   whole: all that is new up to snapshot s2;    open: the first page of it, the last being that of hi_id;
--   page, end: a further page, the last page, of a backlog opened before.
-- A row with the mark `more` says that there is more than was asked for.
-- The settings pin the plans: one made while the table was empty would read it whole when it is not.
CREATE FUNCTION posthouse.poll(numbers smallint[], epochs bigint[], most integer, tidy boolean)
RETURNS TABLE (
    lane smallint, mark text, id bigint, topic text, tenant text, key text, sequence bigint, lineage integer,
    event_id text, headers text, body bytea, stuck boolean
) LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 500
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    now_s pg_snapshot := pg_current_snapshot();
    now_max xid8 := pg_snapshot_xmax(now_s);
    room integer := most;
    found_rows integer;
    lo bigint;
    hi bigint;
    last bigint;
    any_stuck boolean;
    c record;
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION 'this server is a standby, whose snapshots do not tell what is open' USING ERRCODE = '25006';
    END IF;
    IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
        RAISE EXCEPTION 'a poll inside a transaction that has written would count its own rows as seen'
            USING ERRCODE = 'PH003';
    END IF;
    IF EXISTS (SELECT 1 FROM posthouse.lane l WHERE l.number = ANY (numbers) AND pg_snapshot_xmax(l.s1) > now_max) THEN
        RAISE EXCEPTION 'the cursors come from another server: the next lease puts them right' USING ERRCODE = 'PH004';
    END IF;
    any_stuck := EXISTS (SELECT 1 FROM posthouse.stuck);

    FOR c IN
        SELECT l.number, l.s1, l.s2, l.last_id, l.hi_id
        FROM unnest(numbers, epochs) WITH ORDINALITY AS w (number, epoch, place)
        CROSS JOIN LATERAL (SELECT * FROM posthouse.lane k WHERE k.number = w.number AND k.epoch = w.epoch) l
        WHERE l.s2 IS NOT NULL
            OR EXISTS (SELECT 1 FROM posthouse.outbox o
                WHERE o.lane = l.number AND o.xid >= pg_snapshot_xmax(l.s1) AND o.xid < now_max)
            OR EXISTS (SELECT 1 FROM pg_snapshot_xip(l.s1) x WHERE pg_visible_in_snapshot(x, now_s))
        ORDER BY w.place
    LOOP
        lane := c.number;
        IF room <= 0 THEN
            mark := 'more'; RETURN NEXT; EXIT;
        END IF;

        IF c.s2 IS NULL THEN
            SELECT count(*) INTO found_rows FROM (
                (SELECT 1 FROM posthouse.outbox o
                WHERE o.lane = c.number AND o.xid >= pg_snapshot_xmax(c.s1) AND o.xid < now_max LIMIT room + 1)
                UNION ALL
                (SELECT 1 FROM pg_snapshot_xip(c.s1) x
                CROSS JOIN LATERAL (SELECT 1 FROM posthouse.outbox o WHERE o.lane = c.number AND o.xid = x) y
                WHERE pg_visible_in_snapshot(x, now_s) LIMIT room + 1)) few;
            IF found_rows <= room THEN
                IF found_rows = 0 AND NOT tidy THEN
                    CONTINUE;
                END IF;
                mark := concat_ws('|', 'whole', c.s1, now_s, '', ''); RETURN NEXT;
                RETURN QUERY
                SELECT c.number, NULL::text, z.id, z.topic, z.tenant, z.key, z.sequence, z.lineage, z.event_id,
                    z.headers, z.body, any_stuck AND posthouse.is_stuck(z.id, z.topic, z.tenant, z.key)
                FROM (
                    SELECT o.* FROM posthouse.outbox o
                    WHERE o.lane = c.number AND o.xid >= pg_snapshot_xmax(c.s1) AND o.xid < now_max
                    UNION ALL
                    SELECT y.* FROM pg_snapshot_xip(c.s1) x
                    CROSS JOIN LATERAL (SELECT o.* FROM posthouse.outbox o WHERE o.lane = c.number AND o.xid = x) y
                    WHERE pg_visible_in_snapshot(x, now_s)) z;
                room := room - found_rows;
                CONTINUE;
            END IF;
            IF room < most THEN
                mark := 'more'; RETURN NEXT; EXIT;
            END IF;
            SELECT min(q.id), max(q.id) INTO lo, hi FROM (
                SELECT o.id FROM posthouse.outbox o
                WHERE o.lane = c.number AND o.xid >= pg_snapshot_xmax(c.s1) AND o.xid < now_max
                UNION ALL
                SELECT y.id FROM pg_snapshot_xip(c.s1) x
                CROSS JOIN LATERAL (SELECT o.id FROM posthouse.outbox o WHERE o.lane = c.number AND o.xid = x) y
                WHERE pg_visible_in_snapshot(x, now_s)) q;
            c.s2 := now_s; c.last_id := NULL; c.hi_id := hi; last := lo - 1;
        ELSE
            last := c.last_id;
        END IF;

        RETURN QUERY
        SELECT c.number, NULL::text, o.id, o.topic, o.tenant, o.key, o.sequence, o.lineage, o.event_id, o.headers, o.body,
            any_stuck AND posthouse.is_stuck(o.id, o.topic, o.tenant, o.key)
        FROM posthouse.outbox o
        WHERE (o.lane + 0) = c.number::integer AND o.id > last AND o.id <= c.hi_id
            AND NOT pg_visible_in_snapshot(o.xid, c.s1) AND pg_visible_in_snapshot(o.xid, c.s2)
        ORDER BY o.id LIMIT room;
        GET DIAGNOSTICS found_rows = ROW_COUNT;
        mark := concat_ws('|', CASE WHEN c.last_id IS NULL THEN 'open' WHEN found_rows < room THEN 'end' ELSE 'page' END,
            c.s1, c.s2, coalesce(c.last_id::text, ''), c.hi_id);
        RETURN NEXT;
        room := room - found_rows;
    END LOOP;
END $$;

-- Whether a row must wait: it, or an earlier one of its key, was refused.
CREATE FUNCTION posthouse.is_stuck(row_id bigint, of_topic text, of_tenant text, of_key text) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT 1 FROM posthouse.stuck s WHERE s.id = row_id)
        OR EXISTS (SELECT 1 FROM posthouse.stuck s
            WHERE s.topic = of_topic AND s.tenant = of_tenant AND s.key = of_key);
END $$;

-- Whether `holder` holds each of these lanes under its epoch, in the run of the server in which it leased them.
CREATE FUNCTION posthouse.holds(holder text, numbers smallint[], epochs bigint[], run text, moment double precision)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN posthouse.incarnation() IS NOT DISTINCT FROM run AND cardinality(numbers) = (
        SELECT count(*) FROM unnest(numbers, epochs) AS w (number, epoch)
        JOIN posthouse.lane l ON l.number = w.number AND l.epoch = w.epoch
        WHERE l.owner = holder AND l.until > moment);
END $$;

-- Move the cursors of some lanes if all are held and none has moved since it was read; count what was sent. The commit
-- need not be waited for: a crash that undoes it only repeats work.
CREATE FUNCTION posthouse.settle(
    holder text, now_given double precision, numbers smallint[], epochs bigint[], moved smallint[],
    s1_before text[], s2_before text[], last_before bigint[], s1_after text[], s2_after text[], last_after bigint[],
    hi_after bigint[], topics text[], counts bigint[]
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    moment double precision := coalesce(now_given, extract(epoch FROM clock_timestamp())::double precision);
    done integer;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    IF NOT posthouse.holds(holder, numbers, epochs, moment) THEN
        RETURN false;
    END IF;
    UPDATE posthouse.lane l SET s1 = v.s1_to::pg_snapshot, s2 = v.s2_to::pg_snapshot, last_id = v.last_to, hi_id = v.hi
    FROM unnest(moved, s1_before, s2_before, last_before, s1_after, s2_after, last_after, hi_after)
        AS v (number, s1_was, s2_was, last_was, s1_to, s2_to, last_to, hi)
    WHERE l.number = v.number AND l.owner = holder AND l.until > moment
        AND l.epoch = epochs[array_position(numbers, v.number)]
        AND l.s1::text = v.s1_was AND l.s2::text IS NOT DISTINCT FROM v.s2_was
        AND l.last_id IS NOT DISTINCT FROM v.last_was;
    GET DIAGNOSTICS done = ROW_COUNT;
    IF done <> cardinality(moved) THEN
        RAISE EXCEPTION 'a lane was moved or taken by another relay' USING ERRCODE = 'PH005';
    END IF;
    INSERT INTO posthouse.sent AS s (topic, lane, count)
    SELECT v.topic, (SELECT min(n) FROM unnest(moved) n), v.count FROM unnest(topics, counts) AS v (topic, count)
    ON CONFLICT (topic, lane) DO UPDATE SET count = s.count + excluded.count;
    RETURN true;
END $$;

-- The tables were restored into another server, or another database: its transaction ids mean nothing to the cursors.
-- What was certainly sent goes, everything else is sent again, under a new lineage; nothing is lost.
CREATE FUNCTION posthouse.recover() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    LOCK TABLE posthouse.outbox IN SHARE ROW EXCLUSIVE MODE;
    DELETE FROM posthouse.outbox o USING posthouse.lane l
    WHERE l.number = o.lane AND o.xid >= pg_snapshot_xmax(pg_current_snapshot())
        AND NOT EXISTS (SELECT 1 FROM posthouse.stuck s WHERE s.id = o.id)
        AND (pg_visible_in_snapshot(o.xid, l.s1)
            OR (l.s2 IS NOT NULL AND pg_visible_in_snapshot(o.xid, l.s2) AND o.id <= l.last_id));
    UPDATE posthouse.outbox SET xid = pg_current_xact_id();
    UPDATE posthouse.lane SET s1 = '1:1:', s2 = NULL, last_id = NULL, hi_id = NULL, owner = NULL, until = 0,
        epoch = epoch + 1;
    DELETE FROM posthouse.member;
    UPDATE posthouse.meta m SET lineage = m.lineage + 1, system = p.system, timeline = p.timeline,
        database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    FROM posthouse.place() p;
END $$;

-- Whether this is the server and the database that the cursors were written on.
CREATE FUNCTION posthouse.at_home() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN (
        SELECT coalesce(m.system = p.system, true)
            AND coalesce(m.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()), true)
        FROM posthouse.meta m, posthouse.place() p);
END $$;

-- Renew what `holder` has, and take or give up lanes so that the relays that are alive hold equal shares. Relays take
-- turns here; lanes with an open backlog are taken first.
CREATE FUNCTION posthouse.lease(holder text, seconds double precision, now_given double precision)
RETURNS TABLE (number smallint, epoch bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    moment double precision;
    share integer;
    mine integer;
    seen text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('posthouse.lease', 0));
    moment := coalesce(now_given, extract(epoch FROM clock_timestamp())::double precision);
    IF NOT posthouse.at_home() THEN
        PERFORM posthouse.recover();
    END IF;
    SELECT p.timeline INTO seen FROM posthouse.place() p;
    PERFORM posthouse.new_timeline(seen) FROM posthouse.meta m WHERE m.timeline <> seen;

    INSERT INTO posthouse.member (owner, until) VALUES (holder, moment + seconds)
    ON CONFLICT (owner) DO UPDATE SET until = excluded.until;
    DELETE FROM posthouse.member m WHERE m.until <= moment;
    SELECT ceil(count(*)::numeric / (SELECT count(*) FROM posthouse.member)), count(*) FILTER (WHERE l.owner = holder)
    INTO share, mine FROM posthouse.lane l;
    UPDATE posthouse.lane l SET owner = NULL, until = 0 WHERE l.number IN (
        SELECT k.number FROM posthouse.lane k WHERE k.owner = holder ORDER BY k.number OFFSET share);
    UPDATE posthouse.lane l SET owner = holder, epoch = l.epoch + 1 WHERE l.number IN (
        SELECT k.number FROM posthouse.lane k WHERE k.owner IS NULL OR (k.until <= moment AND k.owner <> holder)
        ORDER BY k.s2 IS NULL, k.number LIMIT greatest(share - mine, 0) FOR UPDATE SKIP LOCKED);
    RETURN QUERY
    UPDATE posthouse.lane l SET until = moment + seconds WHERE l.owner = holder RETURNING l.number, l.epoch;
END $$;
