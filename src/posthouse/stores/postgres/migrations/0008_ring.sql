-- The outbox becomes a ring of leaves: writers fill one of them, what all lanes have passed is truncated, and no table is
-- made or dropped while events flow. Which leaf a row is in means nothing to those who read it.
LOCK TABLE posthouse.outbox IN ACCESS EXCLUSIVE MODE;

-- The table that was there becomes the first leaf as it is: no row is copied.
ALTER TABLE posthouse.outbox RENAME TO outbox_0;
ALTER INDEX posthouse.outbox_by_transaction RENAME TO outbox_0_lane_xid_idx;
ALTER INDEX posthouse.outbox_by_id RENAME TO outbox_0_expr_id_idx;
ALTER SEQUENCE posthouse.outbox_id_seq RENAME TO outbox_0_id_seq;
ALTER TABLE posthouse.outbox_0 ADD COLUMN slot smallint NOT NULL DEFAULT 0;

-- A leaf that is truncated soon needs no vacuum because of what was added to it: that would write three bytes per event.
ALTER TABLE posthouse.outbox_0 SET (autovacuum_vacuum_insert_threshold = -1);
ALTER TABLE posthouse.outbox_0 RESET (autovacuum_vacuum_insert_scale_factor);

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
    body bytea NOT NULL,
    slot smallint NOT NULL DEFAULT 0
) PARTITION BY LIST (slot);

-- Ids go on where they were: nobody is drawing one under this lock.
SELECT setval('posthouse.outbox_id_seq', nextval('posthouse.outbox_0_id_seq'));
ALTER TABLE posthouse.outbox_0 ALTER COLUMN id DROP IDENTITY;

ALTER TABLE posthouse.outbox ATTACH PARTITION posthouse.outbox_0 FOR VALUES IN (0);
CREATE TABLE posthouse.outbox_1 PARTITION OF posthouse.outbox FOR VALUES IN (1)
    WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_threshold = -1);
CREATE TABLE posthouse.outbox_2 PARTITION OF posthouse.outbox FOR VALUES IN (2)
    WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_threshold = -1);
CREATE TABLE posthouse.outbox_3 PARTITION OF posthouse.outbox FOR VALUES IN (3)
    WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_threshold = -1);

-- Stuck rows that outlived their leaf: a truncated leaf leaves them here, with their ids and transactions.
CREATE TABLE posthouse.outbox_kept PARTITION OF posthouse.outbox FOR VALUES IN (-1);

CREATE INDEX outbox_by_transaction ON posthouse.outbox (lane, xid);
CREATE INDEX outbox_by_id ON posthouse.outbox ((lane + 0), id);

-- Pages are merged from the leaves in the order of ids, never sorted.
ALTER FUNCTION posthouse.poll(smallint[], bigint[], integer, boolean) SET enable_sort = off;

-- The leaf that is written, and since when. A writer that has not seen the last turn writes to the one before: that is no
-- harm, since a leaf is emptied only when nothing in it is needed.
ALTER TABLE posthouse.meta ADD COLUMN slot smallint NOT NULL DEFAULT 0;
ALTER TABLE posthouse.meta ADD COLUMN slot_since timestamptz NOT NULL DEFAULT now();

CREATE FUNCTION posthouse.leaf(slot integer) RETURNS regclass LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN ('posthouse.outbox_' || CASE WHEN slot < 0 THEN 'kept' ELSE slot::text END)::regclass;
END $$;

-- As before, into the leaf that is written now: add rows to the outbox; one element of each array per row. Returns the
-- event id that stands for each row, or NULL when each stands for itself. `identity` and `lanes` are what the caller
-- believes of this database. Locks are taken in one order everywhere: intents, then keys, each sorted.
CREATE OR REPLACE FUNCTION posthouse.append(
    identity text, lanes integer, lane_numbers smallint[], topics text[], tenants text[], keys text[],
    numbered boolean[], event_ids text[], header_texts text[], bodies bytea[], intents text[],
    now_given double precision, remember double precision
) RETURNS text[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    here record;
    number bigint;
    standing text[];
    fresh boolean[];
    intent record;
    moment double precision := coalesce(now_given, extract(epoch FROM clock_timestamp())::double precision);
BEGIN
    -- A commit that a crash may undo could have been published, and its number be given again.
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    SELECT m.identity, m.lanes, m.lineage, m.timeline, m.slot INTO STRICT here FROM posthouse.meta m;
    IF here.identity <> append.identity THEN
        RAISE EXCEPTION 'this connection is to another database than the store' USING ERRCODE = 'PH001';
    END IF;
    IF here.lanes <> append.lanes THEN
        RAISE EXCEPTION 'the outbox has % lanes, not %', here.lanes, append.lanes USING ERRCODE = 'PH002';
    END IF;
    IF here.timeline IS NOT NULL AND here.timeline <> substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) THEN
        here.lineage := posthouse.new_timeline(substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8));
    END IF;

    -- One row without an intent is by far the most frequent: no sets, no sorting.
    IF cardinality(event_ids) = 1 AND intents[1] IS NULL THEN
        IF numbered[1] AND keys[1] IS NOT NULL THEN
            INSERT INTO posthouse.key AS k (topic, tenant, key, sequence) VALUES (topics[1], tenants[1], keys[1], 1)
            ON CONFLICT (topic, tenant, key) DO UPDATE SET sequence = k.sequence + 1 RETURNING k.sequence INTO number;
        END IF;
        INSERT INTO posthouse.outbox (lane, topic, tenant, key, sequence, lineage, event_id, headers, body, slot)
        VALUES (lane_numbers[1], topics[1], tenants[1], keys[1], number, here.lineage, event_ids[1], header_texts[1],
                bodies[1], here.slot);
        RETURN NULL;
    END IF;

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

-- Let writers go on to an empty leaf once theirs is large, or old and not small; sizes in bytes, with indexes. When none is
-- empty they stay. Returns the leaves that may be emptied.
CREATE FUNCTION posthouse.turn(large bigint, small bigint, old double precision)
RETURNS smallint[] LANGUAGE plpgsql AS $$
DECLARE
    here record;
    size bigint;
    following smallint;
BEGIN
    SELECT m.slot, m.slot_since < clock_timestamp() - old * interval '1 second' AS old INTO here FROM posthouse.meta m;
    size := pg_total_relation_size(posthouse.leaf(here.slot));
    IF size >= large OR (here.old AND size >= small) THEN
        SELECT (here.slot + step) % 4 INTO following FROM generate_series(1, 3) step
        WHERE pg_relation_size(posthouse.leaf((here.slot + step) % 4)) = 0 ORDER BY step LIMIT 1;
        IF FOUND THEN
            UPDATE posthouse.meta m SET slot = following, slot_since = clock_timestamp() WHERE m.slot = here.slot;
        END IF;
    END IF;
    RETURN ARRAY(SELECT n FROM generate_series(0, 3) n, posthouse.meta m
        WHERE n <> m.slot AND pg_relation_size(posthouse.leaf(n)) > 0);
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

-- Who may have a leaf truncated: a role that may delete what is in it, and sees it. Asked of the session's own role, since
-- the two functions below run as the owner of the leaves.
CREATE FUNCTION posthouse.may_truncate() RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN has_table_privilege(session_user, 'posthouse.outbox', 'DELETE') AND posthouse.sees_all();
END $$;

-- The two things that only the owner of the leaves can do. What is in the leaf is for the caller to look at.
CREATE FUNCTION posthouse.lock_leaf(slot integer) RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT has_table_privilege(session_user, 'posthouse.outbox', 'DELETE') THEN
        RAISE insufficient_privilege USING MESSAGE = 'the leaves of the outbox are emptied by the runtime';
    END IF;
    EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', posthouse.leaf(slot));
END $$;

CREATE FUNCTION posthouse.truncate_leaf(slot integer) RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT has_table_privilege(session_user, 'posthouse.outbox', 'DELETE') THEN
        RAISE insufficient_privilege USING MESSAGE = 'the leaves of the outbox are emptied by the runtime';
    END IF;
    EXECUTE format('TRUNCATE TABLE ONLY %s', posthouse.leaf(slot));
END $$;

-- Truncate a leaf if nothing in it is needed; whether that was done. First look at what is committed, without a lock. Then,
-- under the lock, for which nobody waits longer than its time, whether anything was committed since: a writer that is still
-- open, also a prepared one, keeps the lock from us. Stuck rows move to the leaf of kept ones.
CREATE FUNCTION posthouse.empty(n integer) RETURNS boolean LANGUAGE plpgsql
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
        SELECT EXISTS (SELECT 1 FROM posthouse.lane l CROSS JOIN LATERAL (
            SELECT 1 FROM posthouse.outbox o
            WHERE o.slot = %1$s AND o.lane = l.number AND o.xid >= pg_snapshot_xmin(l.s1)
                AND NOT pg_visible_in_snapshot(o.xid, l.s1)
                AND NOT coalesce(pg_visible_in_snapshot(o.xid, l.s2) AND o.id <= l.last_id, false) LIMIT 1) p)
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
            JOIN posthouse.outbox o ON o.slot = %1$s AND (o.lane + 0) = s.lane::integer AND o.id = s.id
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

-- Delete up to so many rows that were dealt with, from leaves that are not worth a truncation; how many.
CREATE FUNCTION posthouse.sweep(most integer, small bigint) RETURNS integer LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    swept integer := 0;
    gone integer;
BEGIN
    FOR n IN -1..3 LOOP
        CONTINUE WHEN pg_relation_size(posthouse.leaf(n)) = 0
            OR (n >= 0 AND pg_total_relation_size(posthouse.leaf(n)) > small AND posthouse.may_truncate());
        EXECUTE format($sql$
            DELETE FROM posthouse.outbox WHERE slot = %1$s AND ctid = ANY (ARRAY(
                SELECT p.ctid FROM posthouse.lane l CROSS JOIN LATERAL (
                    SELECT o.ctid FROM posthouse.outbox o
                    WHERE o.slot = %1$s AND o.lane = l.number AND o.xid < pg_snapshot_xmax(l.s1)
                        AND pg_visible_in_snapshot(o.xid, l.s1)
                        AND NOT EXISTS (SELECT 1 FROM posthouse.stuck s WHERE s.id = o.id)
                    LIMIT $1 FOR UPDATE SKIP LOCKED) p
                LIMIT $1))
            $sql$, n) USING most - swept;
        GET DIAGNOSTICS gone = ROW_COUNT;
        swept := swept + gone;
        EXIT WHEN swept >= most;
    END LOOP;
    RETURN swept;
END $$;
