-- The partition of a slot; -1 is that of kept rows.
CREATE FUNCTION posthouse.partition(slot integer) RETURNS regclass LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN ('posthouse.outbox_' || CASE WHEN slot < 0 THEN 'kept' ELSE slot::text END)::regclass;
END $$;

-- Let writers go on to an empty partition once theirs is large, or old and not small; sizes in bytes, with indexes. When none is
-- empty they stay. Returns the partitions that may be emptied. What was sent is kept for `keep` seconds from when its partition was
-- left: then partitions are as old as a third of that when they are left, three of them cover it, and the one that was left first goes
-- earlier when writers need an empty one, because theirs has a quarter of `room`.
CREATE FUNCTION posthouse.rotate(
    large bigint, small bigint, old double precision, keep double precision DEFAULT 0, room bigint DEFAULT 0,
    now_given double precision DEFAULT NULL
) RETURNS smallint[] LANGUAGE plpgsql AS $$
DECLARE
    moment double precision := coalesce(now_given, extract(epoch FROM clock_timestamp())::double precision);
    here record;
    size bigint;
    following smallint;
    needed smallint;
BEGIN
    IF keep > 0 THEN
        large := greatest(large, room / 4);
        old := greatest(old, keep / 3);
        small := 0;
    END IF;
    SELECT m.slot, m.slot_left, m.slot_since < to_timestamp(moment - old) AS old INTO here FROM posthouse.meta m;
    size := pg_total_relation_size(posthouse.partition(here.slot));
    IF size >= large OR (here.old AND size >= small AND pg_relation_size(posthouse.partition(here.slot)) > 0) THEN
        SELECT (here.slot + step) % 4 INTO following FROM generate_series(1, 3) step
        WHERE pg_relation_size(posthouse.partition((here.slot + step) % 4)) = 0 ORDER BY step LIMIT 1;
        IF FOUND THEN
            UPDATE posthouse.meta m SET slot = following, slot_since = to_timestamp(moment), slot_left[here.slot + 1] = moment
            WHERE m.slot = here.slot;
        ELSIF size >= large THEN
            SELECT n INTO needed FROM generate_series(0, 3) n WHERE n <> here.slot ORDER BY here.slot_left[n + 1] LIMIT 1;
        END IF;
    END IF;
    RETURN ARRAY(SELECT n FROM generate_series(0, 3) n, posthouse.meta m
        WHERE n <> m.slot AND pg_relation_size(posthouse.partition(n)) > 0
            AND (keep <= 0 OR m.slot_left[n + 1] <= moment - keep OR n = needed));
END $$;

-- Whether the caller sees every row: under row-level security a check could pass over rows that are still to be sent.
CREATE FUNCTION posthouse.sees_all() RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN NOT row_security_active('posthouse.outbox') OR (
        EXISTS (SELECT 1 FROM pg_policy p, unnest(p.polroles) r
            WHERE p.polrelid = 'posthouse.outbox'::regclass AND p.polpermissive AND p.polcmd IN ('*', 'r')
                AND pg_get_expr(p.polqual, p.polrelid) = 'true' AND (r = 0 OR pg_has_role(r, 'USAGE')))
        AND NOT EXISTS (SELECT 1 FROM pg_policy p WHERE p.polrelid = 'posthouse.outbox'::regclass AND NOT p.polpermissive));
END $$;

-- Who may have a partition truncated: a role that may delete what is in it, and sees it. Asked of the session's own role, since
-- the two functions below run as the owner of the partitions.
CREATE FUNCTION posthouse.may_truncate() RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN has_table_privilege(session_user, 'posthouse.outbox', 'DELETE') AND posthouse.sees_all();
END $$;

-- The two things that only the owner of the partitions can do. What is in the partition is for the caller to look at.
CREATE FUNCTION posthouse.lock_partition(slot integer) RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT has_table_privilege(session_user, 'posthouse.outbox', 'DELETE') THEN
        RAISE insufficient_privilege USING MESSAGE = 'the partitions of the outbox are emptied by the runtime';
    END IF;
    EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', posthouse.partition(slot));
END $$;

CREATE FUNCTION posthouse.truncate_partition(slot integer) RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT has_table_privilege(session_user, 'posthouse.outbox', 'DELETE') THEN
        RAISE insufficient_privilege USING MESSAGE = 'the partitions of the outbox are emptied by the runtime';
    END IF;
    EXECUTE format('TRUNCATE TABLE ONLY %s', posthouse.partition(slot));
END $$;

-- Remember that rows up to this transaction may be gone. One that everybody knows of already needs no note.
CREATE FUNCTION posthouse.note_purged(upto xid8) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE posthouse.meta m SET purged = upto WHERE m.purged < upto;
END $$;

-- Truncate a partition if nothing in it is needed; whether that was done. First look at what is committed, without a lock. Then,
-- under the lock, for which nobody waits longer than its time, whether anything was committed since: a writer that is still
-- open, also a prepared one, keeps the lock from us. Stuck rows move to the partition of kept ones.
CREATE FUNCTION posthouse.empty_partition(n integer) RETURNS boolean LANGUAGE plpgsql
SET lock_timeout = '20ms' SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    looked_at pg_snapshot;
    needed boolean;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'a partition is emptied in a READ COMMITTED transaction: others do not see what was committed last'
            USING ERRCODE = 'PH003';
    END IF;
    IF NOT posthouse.may_truncate() OR NOT pg_try_advisory_xact_lock(hashtextextended('posthouse.empty_partition', 0))
        OR n = (SELECT m.slot FROM posthouse.meta m) THEN
        RETURN false;
    END IF;
    looked_at := pg_current_snapshot();
    EXECUTE format($sql$
        SELECT EXISTS (SELECT 1 FROM posthouse.shard l LEFT JOIN posthouse.backlog b ON b.number = l.backlog CROSS JOIN LATERAL (
            SELECT 1 FROM posthouse.outbox o
            WHERE o.slot = %1$s AND o.shard = l.number AND o.xid >= pg_snapshot_xmin(l.s1)
                AND NOT pg_visible_in_snapshot(o.xid, l.s1)
                AND NOT coalesce(pg_visible_in_snapshot(o.xid, b.s2) AND o.id <= b.last_id, false) LIMIT 1) p)
        $sql$, n) INTO needed;
    IF needed THEN
        RETURN false;
    END IF;
    BEGIN
        EXECUTE format($sql$
            INSERT INTO posthouse.outbox (id, xid, shard, topic, tenant, key, sequence, lineage, event_id, headers, body, slot, written_at)
            OVERRIDING SYSTEM VALUE
            SELECT o.id, o.xid, o.shard, o.topic, o.tenant, o.key, o.sequence, o.lineage, o.event_id, o.headers, o.body, -1, o.written_at
            FROM posthouse.stuck s
            JOIN posthouse.outbox o ON o.slot = %1$s AND o.id = s.id
            $sql$, n);
        PERFORM posthouse.lock_partition(n);
        EXECUTE format($sql$
            SELECT EXISTS (SELECT 1 FROM posthouse.shard l CROSS JOIN LATERAL (
                    SELECT 1 FROM posthouse.outbox o
                    WHERE o.slot = %1$s AND o.shard = l.number AND o.xid >= pg_snapshot_xmax($1) LIMIT 1) p)
                OR EXISTS (SELECT 1 FROM posthouse.shard l CROSS JOIN pg_snapshot_xip($1) x CROSS JOIN LATERAL (
                    SELECT 1 FROM posthouse.outbox o WHERE o.slot = %1$s AND o.shard = l.number AND o.xid = x LIMIT 1) p)
            $sql$, n) INTO needed USING looked_at;
        IF needed THEN
            RAISE lock_not_available;  -- undoes the copies as well
        END IF;
        EXECUTE format($sql$
            SELECT posthouse.note_purged(p.xid) FROM posthouse.shard l CROSS JOIN LATERAL (
                SELECT o.xid FROM posthouse.outbox o WHERE o.slot = %1$s AND o.shard = l.number ORDER BY o.xid DESC LIMIT 1) p
            ORDER BY p.xid DESC LIMIT 1
            $sql$, n);
        PERFORM posthouse.truncate_partition(n);
    EXCEPTION WHEN lock_not_available THEN
        RETURN false;
    END;
    RETURN true;
END $$;

-- Let the planner know of partitions that have grown to twice what it knows: one that is kept grows large within the minute in which
-- the server looks by itself, and without figures a poll reads all of it.
CREATE FUNCTION posthouse.analyze_grown(small bigint) RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    leaf regclass;
BEGIN
    IF NOT has_table_privilege(session_user, 'posthouse.outbox', 'DELETE') THEN
        RAISE insufficient_privilege USING MESSAGE = 'the partitions of the outbox are looked after by the runtime';
    END IF;
    FOR leaf IN
        SELECT c.oid::regclass FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'posthouse.outbox'::regclass AND pg_relation_size(c.oid) > small
            AND pg_relation_size(c.oid) > 2 * greatest(c.relpages, 0) * current_setting('block_size')::bigint
    LOOP
        EXECUTE format('ANALYZE %s', leaf);
    END LOOP;
END $$;

-- Delete up to so many rows that were dealt with, from partitions that are not worth a truncation; how many. Where rows are kept for a
-- while, from those that were left so long ago, if they cannot be truncated.
CREATE FUNCTION posthouse.delete_sent(most integer, small bigint, keep double precision DEFAULT 0, now_given double precision DEFAULT NULL)
RETURNS integer LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    moment double precision := coalesce(now_given, extract(epoch FROM clock_timestamp())::double precision);
    swept integer := 0;
    gone integer;
    latest xid8;
BEGIN
    FOR n IN -1..3 LOOP
        CONTINUE WHEN pg_relation_size(posthouse.partition(n)) = 0
            OR (n >= 0 AND (keep > 0 OR pg_total_relation_size(posthouse.partition(n)) > small) AND posthouse.may_truncate())
            OR (n >= 0 AND keep > 0 AND (SELECT n = m.slot OR m.slot_left[n + 1] > moment - keep FROM posthouse.meta m));
        EXECUTE format($sql$
            WITH gone AS (DELETE FROM posthouse.outbox WHERE slot = %1$s AND ctid = ANY (ARRAY(
                SELECT p.ctid FROM posthouse.shard l CROSS JOIN LATERAL (
                    SELECT o.ctid FROM posthouse.outbox o
                    WHERE o.slot = %1$s AND o.shard = l.number AND o.xid < pg_snapshot_xmax(l.s1)
                        AND pg_visible_in_snapshot(o.xid, l.s1)
                        AND NOT EXISTS (SELECT 1 FROM posthouse.stuck s WHERE s.id = o.id)
                    LIMIT $1 FOR UPDATE SKIP LOCKED) p
                LIMIT $1)) RETURNING xid)
            SELECT count(*), (array_agg(g.xid ORDER BY g.xid DESC))[1] FROM gone g
            $sql$, n) INTO gone, latest USING most - swept;
        PERFORM posthouse.note_purged(latest) WHERE latest IS NOT NULL;
        swept := swept + gone;
        EXIT WHEN swept >= most;
    END LOOP;
    RETURN swept;
END $$;
