-- A job has ended: it holds nothing any more. Whatever waits next in a key that it has closed is due; where something is missing
-- before what waits, somebody is to be told; the keys are open, and nothing is left that was put aside. What somebody applies at
-- this moment is waited for.
CREATE FUNCTION posthouse.release_replay(of_job text, now_given double precision) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    moment double precision := coalesce(now_given, extract(epoch FROM clock_timestamp())::double precision);
    closed posthouse.head;
BEGIN
    DELETE FROM posthouse.replay_event WHERE job = of_job;
    DELETE FROM posthouse.replay WHERE job = of_job;
    FOR closed IN SELECT h.* FROM posthouse.head h WHERE h.replay <> '' AND h.replay LIKE of_job || ':%'
        ORDER BY h.topic, h.tenant, h.key FOR UPDATE LOOP
        UPDATE posthouse.head h SET held = h.held - 1, replay = ''
        WHERE h.consumer = closed.consumer AND h.topic = closed.topic AND h.tenant = closed.tenant AND h.key = closed.key;
        UPDATE posthouse.held e SET state = CASE WHEN e.sequence = closed.sequence + 1 THEN 'retrying' ELSE 'gap' END,
            attempts = 0, turn = e.turn + 1, next_at = moment
        WHERE e.state IN ('gap', 'blocked') AND e.id = (SELECT w.id FROM posthouse.held w
            WHERE w.consumer = closed.consumer AND w.topic = closed.topic AND w.tenant = closed.tenant AND w.key = closed.key
                AND w.sequence IS NOT NULL AND w.state IN ('retrying', 'gap', 'blocked', 'dead')
            ORDER BY w.sequence LIMIT 1);
    END LOOP;
END $$;
