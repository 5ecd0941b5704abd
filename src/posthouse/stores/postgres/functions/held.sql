-- The row of a key's head, locked, so that where the key stands stays true until the transaction ends. A key with no head
-- yet gets one that stands before the first number it expects: before this event when the consumer adopts, else at 0.
CREATE FUNCTION posthouse.lock_head(e posthouse.held) RETURNS posthouse.head LANGUAGE plpgsql AS $$
DECLARE
    head posthouse.head;
BEGIN
    INSERT INTO posthouse.head AS h (consumer, topic, tenant, key, sequence, lineage, event_id, digest)
    SELECT e.consumer, e.topic, e.tenant, e.key,
        CASE WHEN EXISTS (SELECT 1 FROM posthouse.consumer c
            WHERE c.consumer = e.consumer AND c.topic = e.topic AND c.adopt) THEN e.sequence - 1 ELSE 0 END,
        e.lineage, '', ''
    ON CONFLICT (consumer, topic, tenant, key) DO UPDATE SET held = h.held
    RETURNING * INTO head;
    RETURN head;
END $$;

-- Add an event. False when it is held already, or when another worker has applied its number meanwhile. Where the one it
-- waits for was applied meanwhile, it is due at once: nobody else would come to promote it.
CREATE FUNCTION posthouse.hold(e posthouse.held, now_given double precision, after double precision)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    moment double precision := coalesce(now_given, extract(epoch FROM clock_timestamp())::double precision);
    blocking boolean := e.sequence IS NOT NULL AND e.state IN ('retrying', 'gap', 'blocked', 'dead');
    head posthouse.head;
    other text;
BEGIN
    e.next_at := coalesce(moment + after, e.next_at);
    e.first_at := CASE WHEN e.first_at = 0 THEN moment ELSE e.first_at END;
    e.last_at := moment;
    IF e.sequence IS NOT NULL AND EXISTS (SELECT 1 FROM posthouse.held h WHERE h.sequence IS NOT NULL
        AND h.consumer = e.consumer AND h.topic = e.topic AND h.tenant = e.tenant AND h.key = e.key
        AND h.sequence = e.sequence AND h.event_id = e.event_id) THEN
        RETURN false;
    END IF;
    IF blocking THEN
        head := posthouse.lock_head(e);
        SELECT h.event_id INTO other FROM posthouse.held h WHERE h.sequence IS NOT NULL
            AND h.state IN ('retrying', 'gap', 'blocked', 'dead')
            AND h.consumer = e.consumer AND h.topic = e.topic AND h.tenant = e.tenant AND h.key = e.key
            AND h.sequence = e.sequence;
        IF other = e.event_id THEN
            RETURN false;
        ELSIF other IS NOT NULL THEN
            blocking := false;
            e.state := 'quarantined';
            e.fingerprint := 'fork';
            e.reason := format('fork: event %s is held under number %s already', other, e.sequence);
        ELSIF head.event_id <> '' AND head.sequence >= e.sequence AND head.lineage >= e.lineage THEN
            RETURN false;
        ELSIF e.state IN ('gap', 'blocked') AND head.sequence + 1 = e.sequence AND head.event_id <> ''
            AND head.replay = '' THEN
            e.state := 'retrying';
            e.next_at := moment;
        END IF;
    END IF;
    INSERT INTO posthouse.held (consumer, topic, tenant, key, sequence, lineage, event_id, digest, time, state, type,
        headers, body, attempts, next_at, first_at, last_at, reason, error, stack, fingerprint, correlation)
    VALUES (e.consumer, e.topic, e.tenant, e.key, e.sequence, e.lineage, e.event_id, e.digest, e.time, e.state, e.type,
        e.headers, e.body, e.attempts, e.next_at, e.first_at, e.last_at, e.reason, e.error, e.stack, e.fingerprint,
        e.correlation)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF blocking THEN
        UPDATE posthouse.head h SET held = h.held + 1
        WHERE h.consumer = e.consumer AND h.topic = e.topic AND h.tenant = e.tenant AND h.key = e.key;
    END IF;
    RETURN true;
END $$;

-- Change an event in its turn; false when that has passed. The head's count of waiting events is kept in step.
CREATE FUNCTION posthouse.change(e posthouse.held, now_given double precision, after double precision)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    moment double precision := coalesce(now_given, extract(epoch FROM clock_timestamp())::double precision);
    before posthouse.held;
    waited boolean;
    waits boolean := e.sequence IS NOT NULL AND e.state IN ('retrying', 'gap', 'blocked', 'dead');
    other text;
BEGIN
    SELECT * INTO before FROM posthouse.held h WHERE h.id = e.id AND h.turn = e.turn
        AND h.consumer = e.consumer AND h.event_id = e.event_id;
    waited := before.sequence IS NOT NULL AND before.state IN ('retrying', 'gap', 'blocked', 'dead');
    IF FOUND AND waits <> waited THEN
        PERFORM posthouse.lock_head(before);  -- heads before what is held, as everywhere
    END IF;
    PERFORM 1 FROM posthouse.held h WHERE h.id = e.id AND h.turn = e.turn
        AND h.consumer = e.consumer AND h.event_id = e.event_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF waits THEN
        SELECT h.event_id INTO other FROM posthouse.held h WHERE h.id <> e.id AND h.sequence IS NOT NULL
            AND h.state IN ('retrying', 'gap', 'blocked', 'dead') AND h.consumer = before.consumer
            AND h.topic = before.topic AND h.tenant = before.tenant AND h.key = before.key AND h.sequence = e.sequence;
        IF FOUND THEN
            RAISE EXCEPTION 'event % is held under number % of this key: skip, quarantine or apply that one first',
                other, e.sequence USING ERRCODE = 'PH006';
        END IF;
    END IF;
    UPDATE posthouse.held h SET state = e.state, sequence = e.sequence, attempts = e.attempts,
        next_at = coalesce(moment + after, e.next_at), last_at = moment, headers = e.headers, body = e.body, reason = e.reason, error = e.error, stack = e.stack,
        fingerprint = e.fingerprint, turn = h.turn + 1
    WHERE h.id = e.id;
    UPDATE posthouse.head h SET held = h.held + waits::integer - waited::integer
    WHERE waits <> waited AND h.consumer = before.consumer AND h.topic = before.topic AND h.tenant = before.tenant
        AND h.key = before.key;
    RETURN true;
END $$;

-- Events of some kinds, by id: each kind is looked for by itself, since a walk along all ids could pass over millions of others.
-- What kinds there are is seen by reading the index in leaps, from the first of each to the first of the next. NULL is any. The
-- settings pin the plans: what is in the order of the index need not be sorted.
CREATE FUNCTION posthouse.held_of_kinds(
    after bigint, most integer, of_consumer text, of_topic text, of_state text
) RETURNS SETOF posthouse.held LANGUAGE plpgsql STABLE ROWS 100
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_incremental_sort = off SET jit = off
AS $$
BEGIN
    RETURN QUERY
    WITH RECURSIVE kind AS (
        (SELECT h.consumer, h.topic, h.state FROM posthouse.held h ORDER BY h.consumer, h.topic, h.state LIMIT 1)
        UNION ALL
        SELECT n.* FROM kind k CROSS JOIN LATERAL (
            SELECT h.consumer, h.topic, h.state FROM posthouse.held h
            WHERE (h.consumer, h.topic, h.state) > (k.consumer, k.topic, k.state)
            ORDER BY h.consumer, h.topic, h.state LIMIT 1) n
    )
    SELECT e.* FROM kind k CROSS JOIN LATERAL (
        SELECT h.* FROM posthouse.held h
        WHERE (h.consumer, h.topic, h.state, h.id) > (k.consumer, k.topic, k.state, after)
            AND (h.consumer, h.topic, h.state) <= (k.consumer, k.topic, k.state)
        ORDER BY h.consumer, h.topic, h.state, h.id LIMIT most) e
    WHERE (of_consumer IS NULL OR k.consumer = of_consumer) AND (of_topic IS NULL OR k.topic = of_topic)
        AND (of_state IS NULL OR k.state = of_state)
    ORDER BY e.id LIMIT most;
END $$;
