-- JSON of ours as jsonb, which has no NUL: U+FFFD stands for one. E'': however a session reads backslashes.
CREATE FUNCTION posthouse.json_of(given text) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN strpos(given, E'\\u0000') = 0 THEN given::jsonb
        ELSE regexp_replace(given, E'(?<!\\\\)((?:\\\\\\\\)*)\\\\u0000', E'\\1\\\\ufffd', 'g')::jsonb END
$$;

-- Where each saga stands, tombstones left out; for saga_view. It runs as whoever asks, so that row-level security holds on
-- every version of PostgreSQL, and is part of the plan of whoever asks: no SET, no other language, not STRICT.
CREATE FUNCTION posthouse.saga_rows() RETURNS TABLE (
    saga text, tenant text, id text, attempt integer, newest boolean, status text, reason text, state jsonb, done jsonb,
    waiting jsonb, tasks jsonb, deadlines jsonb, parent_saga text, parent_id text, parent_attempt integer,
    started_at double precision, changed_at double precision, ended_at double precision, number bigint
) LANGUAGE sql STABLE AS $$
    SELECT s.saga, s.tenant, s.id, s.attempt,
        NOT EXISTS (SELECT FROM posthouse.saga n
            WHERE n.tenant = s.tenant AND n.saga = s.saga AND n.id = s.id AND n.attempt > s.attempt),
        s.status, s.reason, posthouse.json_of(s.state),
        jsonb_path_query_array(posthouse.json_of(s.progress), '$.done[*][0]'),
        coalesce((SELECT jsonb_agg(jsonb_build_object(
                'type', w.event -> 'type', 'step', w.event -> 'method', 'since', w.event -> 'since', 'until', w.event -> 'until')
            ORDER BY w.place)
            FROM jsonb_array_elements(posthouse.json_of(s.progress) -> 'waiting') WITH ORDINALITY w (event, place)), '[]'),
        coalesce(posthouse.json_of(s.progress) -> 'tasks', '{}'),
        coalesce((SELECT jsonb_object_agg(d.name, d.armed -> 'due_at')
            FROM jsonb_each(posthouse.json_of(s.progress) -> 'deadlines') d (name, armed)
            WHERE strpos(d.name, ' ') = 0), '{}'),  -- those of our own have a space
        s.parent_saga, s.parent_id, s.parent_attempt, s.started_at, s.changed_at, s.ended_at, s.number
    FROM posthouse.saga s WHERE s.purged_at IS NULL
$$;

-- The same for queries of the user: a promise, in docs/sagas.md column by column.
CREATE VIEW posthouse.saga_view AS SELECT * FROM posthouse.saga_rows();
