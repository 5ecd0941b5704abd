-- Whether a consumer takes the first number it sees of a key; decided at its first start.
CREATE TABLE posthouse.consumer (
    consumer text NOT NULL,
    topic text NOT NULL,
    adopt boolean NOT NULL,
    PRIMARY KEY (consumer, topic)
);

-- Ordered consumers: the last event applied of each key, when the newest id of all of them was drawn (milliseconds), and how
-- many of that key are held in a blocking state.
CREATE TABLE posthouse.head (
    consumer text NOT NULL,
    topic text NOT NULL,
    tenant text NOT NULL,
    key text NOT NULL,
    sequence bigint NOT NULL,
    lineage integer NOT NULL,
    event_id text NOT NULL,
    digest bytea NOT NULL,
    newest bigint NOT NULL DEFAULT 0,
    held integer NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer, topic, tenant, key)
) WITH (fillfactor = 70);

-- Unordered consumers: every event applied, until it is purged.
CREATE TABLE posthouse.inbox (
    consumer text NOT NULL,
    tenant text NOT NULL,
    event_id text NOT NULL,
    topic text NOT NULL,
    digest bytea NOT NULL,
    time double precision NOT NULL,
    received_at double precision NOT NULL,
    result text NOT NULL,
    PRIMARY KEY (consumer, tenant, event_id)
);

CREATE INDEX inbox_received_at ON posthouse.inbox (received_at);

-- Up to what time events may have been applied and purged.
CREATE TABLE posthouse.forgotten (
    consumer text PRIMARY KEY,
    until double precision NOT NULL
);

-- One line for each event applied or skipped, added with it. Adding locks nothing: a figure that all workers of a
-- consumer change would let only one of them commit at a time.
CREATE TABLE posthouse.tally (
    consumer text NOT NULL,
    topic text NOT NULL,
    applied integer NOT NULL,
    skipped integer NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

-- The sum of the lines that were cleared away.
CREATE TABLE posthouse.applied (
    consumer text NOT NULL,
    topic text NOT NULL,
    applied bigint NOT NULL,
    skipped bigint NOT NULL,
    PRIMARY KEY (consumer, topic)
) WITH (fillfactor = 50);

-- What could not be applied.
CREATE TABLE posthouse.held (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer text NOT NULL,
    topic text NOT NULL,
    tenant text NOT NULL,
    key text,
    sequence bigint,
    lineage integer NOT NULL,
    event_id text NOT NULL,
    digest bytea NOT NULL,
    time double precision NOT NULL,
    state text NOT NULL,
    type text NOT NULL,
    headers text,
    body bytea NOT NULL,
    attempts integer NOT NULL,
    next_at double precision NOT NULL,
    first_at double precision NOT NULL,
    last_at double precision NOT NULL,
    reason text NOT NULL,
    error text NOT NULL,
    stack text NOT NULL,
    turn bigint NOT NULL DEFAULT 0
);

-- At most one event of a number keeps its key waiting: another one with that number is a fork.
CREATE UNIQUE INDEX held_waiting ON posthouse.held (consumer, topic, tenant, key, sequence)
    WHERE sequence IS NOT NULL AND state IN ('retrying', 'gap', 'blocked', 'dead');

CREATE UNIQUE INDEX held_ordered ON posthouse.held (consumer, topic, tenant, key, sequence, event_id)
    WHERE sequence IS NOT NULL;

CREATE UNIQUE INDEX held_unordered ON posthouse.held (consumer, tenant, event_id) WHERE sequence IS NULL;

CREATE INDEX held_next_at ON posthouse.held (consumer, state, next_at);

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
            e.reason := format('fork: event %s is held under number %s already', other, e.sequence);
        ELSIF head.event_id <> '' AND head.sequence >= e.sequence AND head.lineage >= e.lineage THEN
            RETURN false;
        ELSIF e.state IN ('gap', 'blocked') AND head.sequence + 1 = e.sequence AND head.event_id <> '' THEN
            e.state := 'retrying';
            e.next_at := moment;
        END IF;
    END IF;
    INSERT INTO posthouse.held (consumer, topic, tenant, key, sequence, lineage, event_id, digest, time, state, type,
        headers, body, attempts, next_at, first_at, last_at, reason, error, stack)
    VALUES (e.consumer, e.topic, e.tenant, e.key, e.sequence, e.lineage, e.event_id, e.digest, e.time, e.state, e.type,
        e.headers, e.body, e.attempts, e.next_at, e.first_at, e.last_at, e.reason, e.error, e.stack)
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
        turn = h.turn + 1
    WHERE h.id = e.id;
    UPDATE posthouse.head h SET held = h.held + waits::integer - waited::integer
    WHERE waits <> waited AND h.consumer = before.consumer AND h.topic = before.topic AND h.tenant = before.tenant
        AND h.key = before.key;
    RETURN true;
END $$;

-- Where a key stands, and the lowest number that waits behind it. The head is locked first and read then: what is decided
-- on it must be true until the transaction ends.
CREATE FUNCTION posthouse.standing(of_consumer text, of_topic text, of_tenant text, of_key text)
RETURNS TABLE (sequence bigint, lineage integer, event_id text, digest bytea, newest bigint, waiting bigint,
    waiting_id text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    PERFORM 1 FROM posthouse.head h
    WHERE h.consumer = of_consumer AND h.topic = of_topic AND h.tenant = of_tenant AND h.key = of_key FOR UPDATE;
    RETURN QUERY
    SELECT h.sequence, h.lineage, h.event_id, h.digest, h.newest, w.sequence, w.event_id
    FROM posthouse.head h LEFT JOIN LATERAL (
        SELECT e.sequence, e.event_id FROM posthouse.held e
        WHERE h.held > 0 AND e.consumer = h.consumer AND e.topic = h.topic AND e.tenant = h.tenant AND e.key = h.key
            AND e.sequence IS NOT NULL AND e.state IN ('retrying', 'gap', 'blocked', 'dead')
        ORDER BY e.sequence LIMIT 1) w ON true
    WHERE h.consumer = of_consumer AND h.topic = of_topic AND h.tenant = of_tenant AND h.key = of_key;
END $$;
