-- What became visible between two snapshots, of some topics and one tenant, or all: behind an id, in the order of ids, at most so many
-- rows. The second snapshot is that of now unless it is given; without the first there are no rows. The last row, whose id is NULL, says
-- in its other columns where and in which snapshot this was, and then up to which transaction rows may be gone: asked last, because a
-- truncation shows at once, also to whoever looked before. Hence VOLATILE, so that each statement sees what was committed last.
-- A transaction that was open in the first snapshot is looked for by its number: those that ended since it began may be very many.
CREATE FUNCTION posthouse.tail(
    s1 pg_snapshot, s2 pg_snapshot, last_id bigint, topics text[], of_tenant text, most integer
) RETURNS TABLE (
    id bigint, topic text, tenant text, key text, sequence bigint, lineage integer, event_id text, headers text, body bytea
) LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 50
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    now_s pg_snapshot := pg_current_snapshot();
    upto pg_snapshot := coalesce(s2, now_s);
    drawn bigint := coalesce(pg_sequence_last_value('posthouse.outbox_id_seq'), 0);
    shards smallint[];
    late xid8[];
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION 'this server is a standby, whose snapshots do not tell what is open' USING ERRCODE = '25006';
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'an outbox is followed in a READ COMMITTED transaction: others do not see what was purged last'
            USING ERRCODE = 'PH003';
    END IF;
    IF s1 IS NOT NULL AND most > 0 THEN
        shards := ARRAY(SELECT number FROM posthouse.shard);
        late := ARRAY(SELECT x FROM pg_snapshot_xip(s1) x WHERE pg_visible_in_snapshot(x, upto));
        RETURN QUERY
        WITH fresh AS MATERIALIZED (
            SELECT o.id, o.topic, o.tenant, o.key, o.sequence, o.lineage, o.event_id, o.headers, o.body FROM posthouse.outbox o
            WHERE o.shard = ANY (shards) AND o.xid >= pg_snapshot_xmax(s1) AND o.xid < pg_snapshot_xmax(upto)
                AND pg_visible_in_snapshot(o.xid, upto)
                AND o.id > last_id AND (topics IS NULL OR o.topic = ANY (topics)) AND (of_tenant IS NULL OR o.tenant = of_tenant)
            UNION ALL
            SELECT o.id, o.topic, o.tenant, o.key, o.sequence, o.lineage, o.event_id, o.headers, o.body FROM posthouse.outbox o
            WHERE cardinality(late) > 0 AND o.shard = ANY (shards) AND o.xid = ANY (late)
                AND o.id > last_id AND (topics IS NULL OR o.topic = ANY (topics)) AND (of_tenant IS NULL OR o.tenant = of_tenant))
        SELECT * FROM fresh f ORDER BY f.id LIMIT most;
    END IF;
    RETURN QUERY SELECT NULL::bigint, m.identity, m.lineage::text,
        coalesce(posthouse.incarnation(), pg_postmaster_start_time()::text), drawn, NULL::integer, now_s::text, m.purged::text, NULL::bytea
    FROM posthouse.meta m;
END $$;
