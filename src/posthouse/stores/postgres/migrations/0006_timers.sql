-- What is due later.
CREATE TABLE posthouse.timer (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    due_at double precision NOT NULL,
    lane smallint NOT NULL,
    topic text NOT NULL,
    tenant text NOT NULL,
    event_id text NOT NULL,
    key text,
    numbered boolean NOT NULL,
    idempotency_key text,
    headers text,
    body bytea NOT NULL,
    UNIQUE (tenant, name)
);

CREATE INDEX timer_due_at ON posthouse.timer (due_at, id);

-- Move due timers into the outbox, in the order of their times; how many. Schedulers take turns, so that two timers of one
-- key are committed in that order; a timer that somebody is changing is left for the next time.
CREATE FUNCTION posthouse.fire(most integer, now_given double precision, remember double precision)
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    due record;
    moment double precision;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('posthouse.fire', 0));
    moment := coalesce(now_given, extract(epoch FROM clock_timestamp())::double precision);
    WITH taken AS (
        DELETE FROM posthouse.timer t WHERE t.id IN (
            SELECT i.id FROM posthouse.timer i WHERE i.due_at <= moment
            ORDER BY i.due_at, i.id LIMIT most FOR UPDATE SKIP LOCKED)
        RETURNING t.*
    )
    SELECT count(*) AS number, array_agg(t.lane ORDER BY t.due_at, t.id) AS lanes,
        array_agg(t.topic ORDER BY t.due_at, t.id) AS topics, array_agg(t.tenant ORDER BY t.due_at, t.id) AS tenants,
        array_agg(t.key ORDER BY t.due_at, t.id) AS keys, array_agg(t.numbered ORDER BY t.due_at, t.id) AS numbered,
        array_agg(t.event_id ORDER BY t.due_at, t.id) AS event_ids,
        array_agg(t.headers ORDER BY t.due_at, t.id) AS headers, array_agg(t.body ORDER BY t.due_at, t.id) AS bodies,
        array_agg(t.idempotency_key ORDER BY t.due_at, t.id) AS intents
    INTO due FROM taken t;
    IF due.number > 0 THEN
        PERFORM posthouse.append(m.identity, m.lanes, due.lanes, due.topics, due.tenants, due.keys, due.numbered,
            due.event_ids, due.headers, due.bodies, due.intents, now_given, remember)
        FROM posthouse.meta m;
    END IF;
    RETURN due.number;
END $$;
