-- The server was promoted: numbers given on the old one and not replicated may be given again, so they get a new
-- lineage. The first who notices changes it, the others wait for that commit and take it over.
CREATE FUNCTION posthouse.new_timeline(seen text, OUT lineage integer) LANGUAGE plpgsql AS $$
BEGIN
    UPDATE posthouse.meta m SET lineage = m.lineage + 1, timeline = seen WHERE m.timeline <> seen;
    SELECT m.lineage INTO lineage FROM posthouse.meta m;
END $$;

-- Add rows to the outbox; one element of each array per row. Returns the event id that stands for each row, or NULL when
-- each stands for itself. `identity` and `lanes` are what the caller believes of this database. Locks are taken in one
-- order everywhere: intents, then keys, each sorted.
CREATE FUNCTION posthouse.append(
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
    SELECT m.identity, m.lanes, m.lineage, m.timeline INTO STRICT here FROM posthouse.meta m;
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
        INSERT INTO posthouse.outbox (lane, topic, tenant, key, sequence, lineage, event_id, headers, body)
        VALUES (lane_numbers[1], topics[1], tenants[1], keys[1], number, here.lineage, event_ids[1], header_texts[1],
                bodies[1]);
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
    INSERT INTO posthouse.outbox (lane, topic, tenant, key, sequence, lineage, event_id, headers, body)
    SELECT g.lane, g.topic, g.tenant, g.key,
        n.sequence - count(*) OVER of_key + row_number() OVER (of_key ORDER BY g.place),
        here.lineage, g.event_id, g.headers, g.body
    FROM given g LEFT JOIN numbers n ON g.counts AND n.topic = g.topic AND n.tenant = g.tenant AND n.key = g.key
    WINDOW of_key AS (PARTITION BY g.counts, g.topic, g.tenant, g.key)
    ORDER BY g.place;
    RETURN standing;
END $$;
