-- Move the cursors of some shards if all are held and none has moved since it was read; count what was sent. The commit
-- need not be waited for: a crash that undoes it only repeats work. A floor that is not given stays: it still holds.
-- Returns 0, or NULL when the shards are not held.
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
    UPDATE posthouse.shard l SET s1 = v.s1_to::pg_snapshot, floor = greatest(l.floor, known)
    FROM unnest(moved, s1_before, s1_after) AS v (number, s1_was, s1_to)
    WHERE l.number = v.number AND l.owner = holder AND l.until > moment
        AND l.epoch = epochs[array_position(numbers, v.number)] AND l.backlog IS NULL AND l.s1::text = v.s1_was;
    GET DIAGNOSTICS done = ROW_COUNT;
    IF done <> cardinality(moved) THEN
        RAISE EXCEPTION 'a shard was moved or taken by another relay' USING ERRCODE = 'PH005';
    END IF;
    PERFORM posthouse.count_sent(moved, topics, counts);
    RETURN 0;
END $$;

-- As `settle`, for shards whose cursors stand at one place and go to one. When those are all that the caller holds, their rows
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
    UPDATE posthouse.shard l SET s1 = s1_after::pg_snapshot, floor = greatest(l.floor, known)
    WHERE l.number = ANY (moved) AND l.owner = holder AND l.until > moment
        AND l.epoch = epochs[array_position(numbers, l.number)] AND l.backlog IS NULL AND l.s1::text = s1_before;
    GET DIAGNOSTICS done = ROW_COUNT;
    IF done <> cardinality(moved) THEN
        RAISE EXCEPTION 'a shard was moved or taken by another relay' USING ERRCODE = 'PH005';
    END IF;
    FOR n IN 1..cardinality(topics) LOOP
        INSERT INTO posthouse.sent AS s (topic, shard, count) VALUES (topics[n], moved[1], counts[n])
        ON CONFLICT (topic, shard) DO UPDATE SET count = s.count + excluded.count;
    END LOOP;
    RETURN 0;
END $$;

-- The same for a page of a backlog, which is opened with its first page and closed with its last. Returns its number, 0 when
-- it is closed, NULL when the shards are not held.
CREATE FUNCTION posthouse.settle_page(
    holder text, now_given double precision, numbers smallint[], epochs bigint[], run text, backlog bigint, page_s2 text,
    last_before bigint, last_after bigint, hi bigint, known bigint, shards smallint[], s1_before text[], topics text[],
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
        UPDATE posthouse.shard l SET backlog = CASE WHEN ends THEN NULL ELSE standing END,
            s1 = CASE WHEN ends THEN page_s2::pg_snapshot ELSE l.s1 END,
            floor = CASE WHEN ends THEN greatest(l.floor, known) ELSE l.floor END
        FROM unnest(shards, s1_before) AS v (number, s1_was)
        WHERE l.number = v.number AND l.owner = holder AND l.until > moment
            AND l.epoch = epochs[array_position(numbers, v.number)]
            AND l.backlog IS NOT DISTINCT FROM settle_page.backlog AND l.s1::text = v.s1_was;
        GET DIAGNOSTICS done = ROW_COUNT;
        IF done <> cardinality(shards) THEN
            RAISE EXCEPTION 'a shard was moved or taken by another relay' USING ERRCODE = 'PH005';
        END IF;
    END IF;
    PERFORM posthouse.count_sent(shards, topics, counts);
    RETURN CASE WHEN ends THEN 0 ELSE standing END;
END $$;

-- Count what was sent of each topic; in the row of the first shard, which no other relay writes.
CREATE FUNCTION posthouse.count_sent(shards smallint[], topics text[], counts bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO posthouse.sent AS s (topic, shard, count)
    SELECT v.topic, (SELECT min(n) FROM unnest(shards) n), v.count FROM unnest(topics, counts) AS v (topic, count)
    ON CONFLICT (topic, shard) DO UPDATE SET count = s.count + excluded.count;
END $$;
