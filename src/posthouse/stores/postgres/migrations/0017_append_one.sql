-- The usual case of `writing` in one look at one row. All of its conditions hold when the row is found, so that the transaction
-- has its id before that of the row is drawn. When it is not, `writing` says what is wrong, or puts it right.
CREATE OR REPLACE FUNCTION posthouse.append_one(
    identity text, lanes integer, lane smallint, topic text, tenant text, key text, numbered boolean, event_id text,
    headers text, body bytea
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    lineage integer;
    slot smallint;
    number bigint;
BEGIN
    SELECT m.lineage, m.slot INTO lineage, slot FROM posthouse.meta m
    WHERE m.identity = append_one.identity AND m.lanes = append_one.lanes
        AND (m.timeline IS NULL OR m.timeline = substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))
        AND current_setting('synchronous_commit') <> 'off' AND pg_current_xact_id() IS NOT NULL
        AND posthouse.incarnation() IS NOT NULL;
    IF NOT FOUND THEN
        SELECT w.lineage, w.slot INTO lineage, slot FROM posthouse.writing(append_one.identity, append_one.lanes) w;
    END IF;
    IF append_one.numbered AND append_one.key IS NOT NULL THEN
        INSERT INTO posthouse.key AS k (topic, tenant, key, sequence)
        VALUES (append_one.topic, append_one.tenant, append_one.key, 1)
        ON CONFLICT ON CONSTRAINT key_pkey DO UPDATE SET sequence = k.sequence + 1 RETURNING k.sequence INTO number;
    END IF;
    INSERT INTO posthouse.outbox (lane, topic, tenant, key, sequence, lineage, event_id, headers, body, slot)
    VALUES (append_one.lane, append_one.topic, append_one.tenant, append_one.key, number, lineage,
            append_one.event_id, append_one.headers, append_one.body, slot);
END $$;
