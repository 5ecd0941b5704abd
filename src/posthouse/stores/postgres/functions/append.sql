-- What a row is written with, once it is sure that this is the database that the caller believes it to be. The transaction
-- has its id from here on: ids of rows are drawn after it, which is what a floor rests on.
CREATE FUNCTION posthouse.writing(identity text, shards integer, OUT lineage integer, OUT slot smallint)
LANGUAGE plpgsql AS $$
DECLARE
    here record;
BEGIN
    PERFORM pg_current_xact_id();
    -- A commit that a crash may undo could have been published, and its number be given again.
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    SELECT m.identity, m.shards, m.slot INTO STRICT here FROM posthouse.meta m;
    IF here.identity <> writing.identity THEN
        RAISE EXCEPTION 'this connection is to another database than the store' USING ERRCODE = 'PH001';
    END IF;
    IF here.shards <> writing.shards THEN
        RAISE EXCEPTION 'the outbox has % shards, not %', here.shards, writing.shards USING ERRCODE = 'PH002';
    END IF;
    lineage := posthouse.current_lineage();
    slot := here.slot;
END $$;

-- Add one row without an intent, by far the most frequent: no sets, no sorting. The first look is the usual case of `writing`
-- at one row. All of its conditions hold when the row is found, so that the transaction has its id before that of the row is
-- drawn. When it is not, `writing` says what is wrong, or puts it right.
CREATE FUNCTION posthouse.append_one(
    identity text, shards integer, shard smallint, topic text, tenant text, key text, numbered boolean, event_id text,
    headers text, body bytea
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    lineage integer;
    slot smallint;
    number bigint;
BEGIN
    SELECT m.lineage, m.slot INTO lineage, slot FROM posthouse.meta m
    WHERE m.identity = append_one.identity AND m.shards = append_one.shards
        AND (m.timeline IS NULL OR m.timeline = substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))
        AND current_setting('synchronous_commit') <> 'off' AND pg_current_xact_id() IS NOT NULL
        AND posthouse.incarnation() IS NOT NULL;
    IF NOT FOUND THEN
        SELECT w.lineage, w.slot INTO lineage, slot FROM posthouse.writing(append_one.identity, append_one.shards) w;
    END IF;
    IF append_one.numbered AND append_one.key IS NOT NULL THEN
        INSERT INTO posthouse.key AS k (topic, tenant, key, sequence)
        VALUES (append_one.topic, append_one.tenant, append_one.key, 1)
        ON CONFLICT ON CONSTRAINT key_pkey DO UPDATE SET sequence = k.sequence + 1 RETURNING k.sequence INTO number;
    END IF;
    INSERT INTO posthouse.outbox (shard, topic, tenant, key, sequence, lineage, event_id, headers, body, slot)
    VALUES (append_one.shard, append_one.topic, append_one.tenant, append_one.key, number, lineage,
            append_one.event_id, append_one.headers, append_one.body, slot);
END $$;

-- Note intents; one element of each array per row. Which rows are fresh, and the event id that stands for each, NULL when each
-- stands for itself. Locks are taken in one order everywhere: intents, then keys, each sorted.
CREATE FUNCTION posthouse.note_intents(
    topics text[], tenants text[], event_ids text[], intents text[], now_given double precision, remember double precision,
    OUT standing text[], OUT fresh boolean[]
) LANGUAGE plpgsql AS $$
DECLARE
    intent record;
    moment double precision := coalesce(now_given, extract(epoch FROM clock_timestamp())::double precision);
BEGIN
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
END $$;

-- Add rows; one element of each array per row. Returns the event id that stands for each row, or NULL when each stands for
-- itself. `identity` and `shards` are what the caller believes of this database. Locks are taken in one order everywhere:
-- intents, then keys, each sorted.
CREATE FUNCTION posthouse.append(
    identity text, shards integer, shard_numbers smallint[], topics text[], tenants text[], keys text[],
    numbered boolean[], event_ids text[], header_texts text[], bodies bytea[], intents text[],
    now_given double precision, remember double precision
) RETURNS text[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    here record;
    standing text[];
    fresh boolean[];
BEGIN
    IF cardinality(event_ids) = 1 AND intents[1] IS NULL THEN
        PERFORM posthouse.append_one(identity, shards, shard_numbers[1], topics[1], tenants[1], keys[1], numbered[1],
            event_ids[1], header_texts[1], bodies[1]);
        RETURN NULL;
    END IF;

    here := posthouse.writing(identity, shards);
    SELECT n.standing, n.fresh INTO standing, fresh
    FROM posthouse.note_intents(topics, tenants, event_ids, intents, now_given, remember) n;

    -- Each row waits for the number of its key, and with it for the key's lock, before its id is drawn.
    WITH given AS MATERIALIZED (
        SELECT g.*, g.numbered AND g.key IS NOT NULL AS counts
        FROM unnest(shard_numbers, topics, tenants, keys, numbered, event_ids, header_texts, bodies, fresh)
            WITH ORDINALITY AS g (shard, topic, tenant, key, numbered, event_id, headers, body, fresh, place)
        WHERE g.fresh
    ), numbers AS (
        INSERT INTO posthouse.key AS k (topic, tenant, key, sequence)
        SELECT g.topic, g.tenant, g.key, count(*) FROM given g WHERE g.counts
        GROUP BY g.topic, g.tenant, g.key ORDER BY g.topic, g.tenant, g.key
        ON CONFLICT (topic, tenant, key) DO UPDATE SET sequence = k.sequence + excluded.sequence
        RETURNING k.topic, k.tenant, k.key, k.sequence
    )
    INSERT INTO posthouse.outbox (shard, topic, tenant, key, sequence, lineage, event_id, headers, body, slot)
    SELECT g.shard, g.topic, g.tenant, g.key,
        n.sequence - count(*) OVER of_key + row_number() OVER (of_key ORDER BY g.place),
        here.lineage, g.event_id, g.headers, g.body, here.slot
    FROM given g LEFT JOIN numbers n ON g.counts AND n.topic = g.topic AND n.tenant = g.tenant AND n.key = g.key
    WINDOW of_key AS (PARTITION BY g.counts, g.topic, g.tenant, g.key)
    ORDER BY g.place;
    RETURN standing;
END $$;

-- The first half of `append`, for rows whose bytes depend on their number: intents, and then numbers, in the order of the places.
CREATE FUNCTION posthouse.number(
    identity text, shards integer, topics text[], tenants text[], keys text[], numbered boolean[], event_ids text[],
    intents text[], now_given double precision, remember double precision
) RETURNS TABLE (place integer, stands text, fresh boolean, sequence bigint, lineage integer) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    here record;
    noted record;
BEGIN
    here := posthouse.writing(identity, shards);
    SELECT n.standing, n.fresh INTO noted
    FROM posthouse.note_intents(topics, tenants, event_ids, intents, now_given, remember) n;
    RETURN QUERY WITH given AS MATERIALIZED (
        SELECT g.*, g.fresh AND g.numbered AND g.key IS NOT NULL AS counts
        FROM unnest(topics, tenants, keys, numbered, coalesce(noted.standing, event_ids), noted.fresh)
            WITH ORDINALITY AS g (topic, tenant, key, numbered, stands, fresh, place)
    ), numbers AS (
        INSERT INTO posthouse.key AS k (topic, tenant, key, sequence)
        SELECT g.topic, g.tenant, g.key, count(*) FROM given g WHERE g.counts
        GROUP BY g.topic, g.tenant, g.key ORDER BY g.topic, g.tenant, g.key
        ON CONFLICT (topic, tenant, key) DO UPDATE SET sequence = k.sequence + excluded.sequence
        RETURNING k.topic, k.tenant, k.key, k.sequence
    )
    SELECT g.place::integer, g.stands, g.fresh,
        n.sequence - count(*) OVER of_key + row_number() OVER (of_key ORDER BY g.place), here.lineage
    FROM given g LEFT JOIN numbers n ON g.counts AND n.topic = g.topic AND n.tenant = g.tenant AND n.key = g.key
    WINDOW of_key AS (PARTITION BY g.counts, g.topic, g.tenant, g.key)
    ORDER BY g.place;
END $$;

-- The second half: add rows that `number` gave their numbers in this transaction, which has its id and the locks of the keys.
CREATE FUNCTION posthouse.append_numbered(
    shard_numbers smallint[], topics text[], tenants text[], keys text[], sequences bigint[], lineages integer[],
    event_ids text[], header_texts text[], bodies bytea[]
) RETURNS void LANGUAGE sql AS $$
    INSERT INTO posthouse.outbox (shard, topic, tenant, key, sequence, lineage, event_id, headers, body, slot)
    SELECT g.shard, g.topic, g.tenant, g.key, g.sequence, g.lineage, g.event_id, g.headers, g.body, m.slot
    FROM unnest(shard_numbers, topics, tenants, keys, sequences, lineages, event_ids, header_texts, bodies)
        WITH ORDINALITY AS g (shard, topic, tenant, key, sequence, lineage, event_id, headers, body, place),
        posthouse.meta m
    ORDER BY g.place
$$;
