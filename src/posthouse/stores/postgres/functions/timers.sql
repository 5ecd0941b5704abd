-- Move due timers into the outbox; how many. Schedulers take turns, so that two timers of one key are committed in the order
-- of their times; who finds another at work does nothing. Nobody waits here for a transaction of a user: a timer that
-- somebody is changing, and all timers of a key that somebody holds, are left for the next time. That a key, or an intent, is
-- just being made shows by waiting for it only: not for longer than the time-out, and then one timer at a time.
CREATE FUNCTION posthouse.fire(most integer, now_given double precision, remember double precision)
RETURNS integer LANGUAGE plpgsql
SET lock_timeout = '20ms' SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    due posthouse.timer;
    spot text;
    ids bigint[];
    busy text[] := '{}';
    passed bigint[] := '{}';
    fired integer;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('posthouse.fire', 0)) THEN
        RETURN 0;
    END IF;
    LOOP
        SELECT f.ids, f.busy_now INTO ids, busy FROM posthouse.free_timers(most, now_given, busy, passed) f;
        IF cardinality(ids) = 0 THEN
            RETURN 0;
        END IF;
        BEGIN
            RETURN posthouse.fire_these(ids, now_given, remember);
        EXCEPTION WHEN lock_not_available THEN
            fired := 0;
        END;
        FOR due IN SELECT i.* FROM posthouse.timer i WHERE i.id = ANY (ids) ORDER BY i.due_at, i.id LOOP
            spot := ROW(due.topic, due.tenant, due.key)::text;
            CONTINUE WHEN spot = ANY (busy);
            BEGIN
                fired := fired + posthouse.fire_these(ARRAY[due.id], now_given, remember);
            EXCEPTION WHEN lock_not_available THEN
                passed := passed || due.id;
                IF due.key IS NOT NULL THEN
                    busy := busy || spot;
                END IF;
            END;
        END LOOP;
        IF fired > 0 THEN
            RETURN fired;
        END IF;
    END LOOP;
END $$;

-- Due timers that nobody changes, of keys that nobody holds; they and their keys are locked. `busy`: the keys that are held up,
-- before and now; `passed`: timers that are left out.
CREATE FUNCTION posthouse.free_timers(
    most integer, now_given double precision, busy text[], passed bigint[], OUT ids bigint[], OUT busy_now text[]
) LANGUAGE plpgsql AS $$
DECLARE
    moment double precision := coalesce(now_given, extract(epoch FROM clock_timestamp())::double precision);
    due posthouse.timer;
    spot text;
    free text[] := '{}';
BEGIN
    ids := '{}';
    busy_now := busy;
    FOR due IN
        SELECT i.* FROM posthouse.timer i WHERE i.due_at <= moment ORDER BY i.due_at, i.id FOR UPDATE SKIP LOCKED
    LOOP
        CONTINUE WHEN due.id = ANY (passed);
        IF due.numbered AND due.key IS NOT NULL THEN
            spot := ROW(due.topic, due.tenant, due.key)::text;
            CONTINUE WHEN spot = ANY (busy_now);
            IF spot <> ALL (free) THEN
                PERFORM 1 FROM posthouse.key k
                WHERE k.topic = due.topic AND k.tenant = due.tenant AND k.key = due.key FOR UPDATE SKIP LOCKED;
                IF NOT FOUND AND EXISTS (SELECT 1 FROM posthouse.key k
                    WHERE k.topic = due.topic AND k.tenant = due.tenant AND k.key = due.key) THEN
                    busy_now := busy_now || spot;
                    CONTINUE;
                END IF;
                free := free || spot;
            END IF;
        END IF;
        ids := ids || due.id;
        EXIT WHEN cardinality(ids) >= most;
    END LOOP;
END $$;

-- Move some timers into the outbox, in the order of their times; how many.
CREATE FUNCTION posthouse.fire_these(ids bigint[], now_given double precision, remember double precision)
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    due record;
BEGIN
    WITH gone AS (
        DELETE FROM posthouse.timer t WHERE t.id = ANY (ids) RETURNING t
    ), taken AS (
        SELECT drawn.* FROM gone, LATERAL posthouse.draw(gone.t) AS drawn
    )
    SELECT count(*) AS number, array_agg(t.shard ORDER BY t.due_at, t.id) AS shards,
        array_agg(t.topic ORDER BY t.due_at, t.id) AS topics, array_agg(t.tenant ORDER BY t.due_at, t.id) AS tenants,
        array_agg(t.key ORDER BY t.due_at, t.id) AS keys, array_agg(t.numbered ORDER BY t.due_at, t.id) AS numbered,
        array_agg(t.event_id ORDER BY t.due_at, t.id) AS event_ids,
        array_agg(t.headers ORDER BY t.due_at, t.id) AS headers, array_agg(t.body ORDER BY t.due_at, t.id) AS bodies,
        array_agg(t.idempotency_key ORDER BY t.due_at, t.id) AS intents
    INTO due FROM taken t;
    IF due.number > 0 THEN
        PERFORM posthouse.append(m.identity, m.shards, due.shards, due.topics, due.tenants, due.keys, due.numbered,
            due.event_ids, due.headers, due.bodies, due.intents, now_given, remember)
        FROM posthouse.meta m;
    END IF;
    RETURN due.number;
END $$;

-- A timer whose fact gets a number, with an id that is drawn now, so that it is newer than all that got theirs before: that is
-- how consumers of a store that was put back tell a number that is given again. The id is a member of the envelope, or a header.
CREATE FUNCTION posthouse.draw(t posthouse.timer) RETURNS posthouse.timer LANGUAGE plpgsql AS $$
DECLARE
    moment text := lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0');
    fresh text := left(moment, 8) || '-' || right(moment, 4) || '-7' || substr(gen_random_uuid()::text, 16);
    member text;
    place integer;
BEGIN
    IF NOT t.numbered OR t.key IS NULL
        OR t.event_id !~ '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$' THEN
        RETURN t;
    END IF;
    member := '"ce-id":"' || t.event_id || '"';
    IF position(member IN t.headers) > 0 THEN
        t.headers := replace(t.headers, member, '"ce-id":"' || fresh || '"');
        t.event_id := fresh;
        RETURN t;
    END IF;
    FOREACH member IN ARRAY ARRAY['"id":"', '"eventId":"'] LOOP
        place := position(convert_to(member || t.event_id || '"', 'UTF8') IN t.body);
        IF place > 0 THEN
            t.body := overlay(t.body PLACING convert_to(fresh, 'UTF8') FROM place + length(member));
            t.event_id := fresh;
            RETURN t;
        END IF;
    END LOOP;
    RETURN t;
END $$;
