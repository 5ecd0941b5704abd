-- What is new in these lanes, where that is little: as `poll`, but lanes whose cursors stand at the same place are looked at
-- together, so that the cost is that of one lane. At most `most` rows and one more, which says that there is no telling what
-- else is new. Beside rows come marks, whose id is NULL:
--   together|lanes|s1|s2: what is new for these lanes up to snapshot s2 is all here, so they may be moved there;
--   backlog: some lanes are behind, and nothing was looked at;
--   stuck: there are rows that the broker refused;
--   drawn|id: ids up to this one are drawn already.
-- The settings pin the plans: one made while the table was empty would read it whole when it is not.
CREATE FUNCTION posthouse.glance(numbers smallint[], epochs bigint[], run text, most integer) RETURNS TABLE (
    mark text, lane smallint, id bigint, topic text, tenant text, key text, sequence bigint, lineage integer, event_id text,
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
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION 'this server is a standby, whose snapshots do not tell what is open' USING ERRCODE = '25006';
    END IF;
    IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
        RAISE EXCEPTION 'a poll inside a transaction that has written would count its own rows as seen'
            USING ERRCODE = 'PH003';
    END IF;
    PERFORM posthouse.be_in(run);
    mark := 'drawn|' || coalesce(pg_sequence_last_value('posthouse.outbox_id_seq'), 0); RETURN NEXT;
    IF any_stuck THEN
        mark := 'stuck'; RETURN NEXT;
    END IF;

    FOR together IN
        SELECT l.s1::text AS s1, array_agg(l.number) AS lanes, bool_or(l.backlog IS NOT NULL) AS behind
        FROM posthouse.lane l WHERE l.number = ANY (numbers) AND l.epoch = epochs[array_position(numbers, l.number)]
        GROUP BY l.s1::text
    LOOP
        IF pg_snapshot_xmax(together.s1::pg_snapshot) > now_max THEN
            RAISE EXCEPTION 'the cursors come from another server: the next lease puts them right' USING ERRCODE = 'PH004';
        END IF;
        IF together.behind THEN
            mark := 'backlog'; RETURN NEXT;
            RETURN;
        END IF;
        mark := concat_ws('|', 'together', array_to_string(together.lanes, ','), together.s1, now_s); RETURN NEXT;
        s1 := together.s1;
        open_since := pg_snapshot_xmin(s1);
        -- Where a transaction has been open for long, those that ended since it began are too many to be passed over one by
        -- one: then the ones that were open are looked for by their numbers.
        late := NULL;
        IF pg_snapshot_xmax(s1)::text::bigint - open_since::text::bigint > 500 THEN
            open_since := pg_snapshot_xmax(s1);
            late := ARRAY(SELECT x FROM pg_snapshot_xip(s1) x WHERE pg_visible_in_snapshot(x, now_s));
        END IF;
        RETURN QUERY
        SELECT NULL::text, o.lane, o.id, o.topic, o.tenant, o.key, o.sequence, o.lineage, o.event_id, o.headers, o.body,
            any_stuck AND posthouse.is_stuck(o.id, o.topic, o.tenant, o.key)
        FROM posthouse.outbox o
        WHERE o.lane = ANY (together.lanes) AND o.xid >= open_since AND o.xid < now_max
            AND NOT pg_visible_in_snapshot(o.xid, s1)
        LIMIT room;
        GET DIAGNOSTICS found_rows = ROW_COUNT;
        room := room - found_rows;
        CONTINUE WHEN coalesce(cardinality(late), 0) = 0;
        RETURN QUERY
        SELECT NULL::text, o.lane, o.id, o.topic, o.tenant, o.key, o.sequence, o.lineage, o.event_id, o.headers, o.body,
            any_stuck AND posthouse.is_stuck(o.id, o.topic, o.tenant, o.key)
        FROM posthouse.outbox o WHERE o.lane = ANY (together.lanes) AND o.xid = ANY (late)
        LIMIT room;
        GET DIAGNOSTICS found_rows = ROW_COUNT;
        room := room - found_rows;
    END LOOP;
END $$;

-- As `settle`, for lanes whose cursors stand at one place and go to one. When those are all that the caller holds, their rows
-- themselves say whether it does. `moved` begins with the lowest.
CREATE FUNCTION posthouse.settle_together(
    holder text, now_given double precision, numbers smallint[], epochs bigint[], run text, moved smallint[],
    s1_before text, s1_after text, known bigint, topics text[], counts bigint[]
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    moment double precision := coalesce(now_given, extract(epoch FROM clock_timestamp())::double precision);
    done integer;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    IF posthouse.incarnation() IS DISTINCT FROM run
        OR (cardinality(moved) < cardinality(numbers) AND NOT posthouse.holds(holder, numbers, epochs, run, moment)) THEN
        RETURN NULL;
    END IF;
    UPDATE posthouse.lane l SET s1 = s1_after::pg_snapshot, floor = greatest(l.floor, known)
    WHERE l.number = ANY (moved) AND l.owner = holder AND l.until > moment
        AND l.epoch = epochs[array_position(numbers, l.number)] AND l.backlog IS NULL AND l.s1::text = s1_before;
    GET DIAGNOSTICS done = ROW_COUNT;
    IF done <> cardinality(moved) THEN
        RAISE EXCEPTION 'a lane was moved or taken by another relay' USING ERRCODE = 'PH005';
    END IF;
    FOR n IN 1..cardinality(topics) LOOP
        INSERT INTO posthouse.sent AS s (topic, lane, count) VALUES (topics[n], moved[1], counts[n])
        ON CONFLICT (topic, lane) DO UPDATE SET count = s.count + excluded.count;
    END LOOP;
    RETURN 0;
END $$;
