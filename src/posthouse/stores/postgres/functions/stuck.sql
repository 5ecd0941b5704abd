-- Whether a row must wait: it, or an earlier one of its key, was refused.
CREATE FUNCTION posthouse.is_stuck(row_id bigint, of_topic text, of_tenant text, of_key text) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT 1 FROM posthouse.stuck s WHERE s.id = row_id)
        OR EXISTS (SELECT 1 FROM posthouse.stuck s
            WHERE s.topic = of_topic AND s.tenant = of_tenant AND s.key = of_key);
END $$;

-- Park rows that the broker refused, or that wait behind one; part of a settle.
CREATE FUNCTION posthouse.park(
    now_given double precision, ids bigint[], shards smallint[], topics text[], tenants text[], keys text[],
    tries integer[], firsts double precision[], afters double precision[], errors text[], quarantines boolean[]
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    moment double precision := coalesce(now_given, extract(epoch FROM clock_timestamp())::double precision);
BEGIN
    INSERT INTO posthouse.stuck (id, shard, topic, tenant, key, attempts, first_at, next_at, error, quarantined)
    SELECT v.id, v.shard, v.topic, v.tenant, v.key, v.tries, CASE WHEN v.first_at = 0 THEN moment ELSE v.first_at END,
        moment + v.after, v.error, v.quarantined
    FROM unnest(ids, shards, topics, tenants, keys, tries, firsts, afters, errors, quarantines)
        AS v (id, shard, topic, tenant, key, tries, first_at, after, error, quarantined)
    ON CONFLICT (tenant, id) DO NOTHING;
    RETURN true;
END $$;

-- Remove stuck rows that were sent, let their followers be due, and reschedule the others, if all the shards are held.
CREATE FUNCTION posthouse.settle_stuck(
    holder text, now_given double precision, numbers smallint[], epochs bigint[], run text, sent bigint[],
    failed bigint[], tries integer[], firsts double precision[], afters double precision[], errors text[],
    quarantines boolean[]
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    moment double precision := coalesce(now_given, extract(epoch FROM clock_timestamp())::double precision);
    gone record;
BEGIN
    IF NOT posthouse.holds(holder, numbers, epochs, run, moment) THEN
        RETURN false;
    END IF;
    FOR gone IN DELETE FROM posthouse.stuck s WHERE s.id = ANY (sent) RETURNING s.topic, s.tenant, s.key LOOP
        UPDATE posthouse.stuck s SET next_at = least(s.next_at, moment)
        WHERE s.topic = gone.topic AND s.tenant = gone.tenant AND s.key = gone.key;
        INSERT INTO posthouse.sent AS s (topic, shard, count) VALUES (gone.topic, numbers[1], 1)
        ON CONFLICT (topic, shard) DO UPDATE SET count = s.count + 1;
    END LOOP;
    UPDATE posthouse.stuck s
    SET attempts = v.tries, first_at = CASE WHEN v.first_at = 0 THEN moment ELSE v.first_at END,
        next_at = moment + v.after, error = v.error, quarantined = v.quarantined
    FROM unnest(failed, tries, firsts, afters, errors, quarantines) AS v (id, tries, first_at, after, error, quarantined)
    WHERE s.id = v.id;
    RETURN true;
END $$;
