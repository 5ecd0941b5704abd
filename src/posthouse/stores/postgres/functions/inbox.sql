-- The lineages of a head that a newer one takes over from. One that applied nothing had none. They are few; whoever makes up
-- very many loses the oldest, and no row grows without end.
CREATE FUNCTION posthouse.succeeded(lineages text, lineage integer, last bigint, event_id text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN event_id = '' THEN lineages
        ELSE CASE WHEN length(lineages) < 500 THEN lineages ELSE '' END || lineage || ':' || last || ' ' END
$$;

-- Record events as applied. An ordered one, or a run of one key from `first` to `last`, if it comes next and nothing of its
-- key is held: all of the run or nothing. An unordered one (`first` NULL) if it is new, no copy of it is held, and it cannot
-- have been forgotten. False changes nothing. The setting pins the plans: made while the tables were empty, they would read
-- them whole later.
CREATE FUNCTION posthouse.claim(
    of_consumer text, of_topic text, of_tenant text, of_key text, first bigint, last bigint, of_lineage integer,
    of_event text, of_digest bytea, drawn bigint, of_time double precision, said double precision,
    now_given double precision
) RETURNS boolean LANGUAGE plpgsql SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    moment double precision := coalesce(now_given, extract(epoch FROM clock_timestamp())::double precision);
BEGIN
    IF first IS NULL THEN
        INSERT INTO posthouse.inbox (consumer, tenant, event_id, topic, digest, time, received_at, result)
        SELECT of_consumer, of_tenant, of_event, of_topic, of_digest, of_time,
            greatest(moment, least(said, moment + 30 * 86400.0)), 'applied'
        WHERE NOT EXISTS (SELECT 1 FROM posthouse.held h
            WHERE h.sequence IS NULL AND h.consumer = of_consumer AND h.tenant = of_tenant AND h.event_id = of_event)
            AND NOT EXISTS (SELECT 1 FROM posthouse.forgotten f WHERE f.consumer = of_consumer AND f.until >= of_time)
        ON CONFLICT DO NOTHING;
        -- It may have waited there for a purge, which has forgotten it meanwhile: this looks again.
        IF FOUND AND EXISTS (SELECT 1 FROM posthouse.forgotten f WHERE f.consumer = of_consumer AND f.until >= of_time) THEN
            RAISE EXCEPTION 'the inbox has just forgotten this event' USING ERRCODE = 'serialization_failure';
        END IF;
    ELSIF first = 1 THEN
        INSERT INTO posthouse.head AS h (consumer, topic, tenant, key, sequence, lineage, event_id, digest, newest)
        VALUES (of_consumer, of_topic, of_tenant, of_key, last, of_lineage, of_event, of_digest, drawn)
        ON CONFLICT (consumer, topic, tenant, key) DO UPDATE SET sequence = excluded.sequence,
            lineage = excluded.lineage, event_id = excluded.event_id, digest = excluded.digest,
            newest = greatest(h.newest, excluded.newest), lineages = CASE WHEN h.lineage = excluded.lineage THEN h.lineages
                ELSE posthouse.succeeded(h.lineages, h.lineage, h.sequence, h.event_id) END
        WHERE h.sequence = 0 AND h.held = 0 AND h.lineage <= excluded.lineage;
    ELSE
        UPDATE posthouse.head h SET sequence = last, lineage = of_lineage, event_id = of_event, digest = of_digest,
            newest = greatest(h.newest, drawn), lineages = CASE WHEN h.lineage = of_lineage THEN h.lineages
                ELSE posthouse.succeeded(h.lineages, h.lineage, h.sequence, h.event_id) END
        WHERE h.consumer = of_consumer AND h.topic = of_topic AND h.tenant = of_tenant AND h.key = of_key
            AND h.sequence + 1 = first AND h.held = 0 AND h.lineage <= of_lineage;
        IF NOT FOUND THEN
            INSERT INTO posthouse.head (consumer, topic, tenant, key, sequence, lineage, event_id, digest, newest)
            SELECT of_consumer, of_topic, of_tenant, of_key, last, of_lineage, of_event, of_digest, drawn
            FROM posthouse.consumer c WHERE c.consumer = of_consumer AND c.topic = of_topic AND c.adopt
            ON CONFLICT (consumer, topic, tenant, key) DO NOTHING;
        END IF;
    END IF;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO posthouse.applied_count (consumer, topic, applied, skipped)
    VALUES (of_consumer, of_topic, coalesce(last - first, 0) + 1, 0);
    RETURN true;
END $$;

-- Where a key stands, and the lowest number that waits behind it. The head is locked first and read then: what is decided
-- on it must be true until the transaction ends.
CREATE FUNCTION posthouse.standing(of_consumer text, of_topic text, of_tenant text, of_key text)
RETURNS TABLE (sequence bigint, lineage integer, event_id text, digest bytea, newest bigint, lineages text,
    waiting bigint, waiting_id text, replay text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    PERFORM 1 FROM posthouse.head h
    WHERE h.consumer = of_consumer AND h.topic = of_topic AND h.tenant = of_tenant AND h.key = of_key FOR UPDATE;
    RETURN QUERY
    SELECT h.sequence, h.lineage, h.event_id, h.digest, h.newest, h.lineages, w.sequence, w.event_id,
        h.replay
    FROM posthouse.head h LEFT JOIN LATERAL (
        SELECT e.sequence, e.event_id FROM posthouse.held e
        WHERE h.held > 0 AND e.consumer = h.consumer AND e.topic = h.topic AND e.tenant = h.tenant AND e.key = h.key
            AND e.sequence IS NOT NULL AND e.state IN ('retrying', 'gap', 'blocked', 'dead')
        ORDER BY e.sequence LIMIT 1) w ON true
    WHERE h.consumer = of_consumer AND h.topic = of_topic AND h.tenant = of_tenant AND h.key = of_key;
END $$;

-- Lock the heads of some keys that are there, in one order, before they are changed in another.
CREATE FUNCTION posthouse.lock_heads(of_consumer text, topics text[], tenants text[], keys text[])
RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    one record;
BEGIN
    FOR one IN SELECT * FROM unnest(topics, tenants, keys) AS g (topic, tenant, key) ORDER BY 1, 2, 3 LOOP
        PERFORM 1 FROM posthouse.head h
        WHERE h.consumer = of_consumer AND h.topic = one.topic AND h.tenant = one.tenant AND h.key = one.key FOR UPDATE;
    END LOOP;
END $$;
