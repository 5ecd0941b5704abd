-- The last version of each stream; whoever appends locks its row, so that versions follow commits.
CREATE TABLE posthouse.stream (
    tenant text NOT NULL,
    aggregate text NOT NULL,
    stream text NOT NULL,
    version bigint NOT NULL,
    PRIMARY KEY (tenant, aggregate, stream)
) WITH (fillfactor = 80);

-- What happened. A position is drawn under the lock of the stream. CACHE 1: a session that keeps numbers in stock would
-- give a later event a lower one. The transaction tells who reads everything what was committed since he last looked.
CREATE TABLE posthouse.stream_event (
    position bigint GENERATED ALWAYS AS IDENTITY (CACHE 1),
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    tenant text NOT NULL,
    aggregate text NOT NULL,
    stream text NOT NULL,
    version bigint NOT NULL,
    event_id text NOT NULL,
    type text NOT NULL,
    headers text,
    body bytea NOT NULL,
    PRIMARY KEY (tenant, aggregate, stream, version)
);

CREATE INDEX stream_event_by_position ON posthouse.stream_event (position);
CREATE INDEX stream_event_by_transaction ON posthouse.stream_event (xid);

-- What streams came to, as a cache: one for each.
CREATE TABLE posthouse.snapshot (
    tenant text NOT NULL,
    aggregate text NOT NULL,
    stream text NOT NULL,
    version bigint NOT NULL,
    shape text NOT NULL,
    state bytea NOT NULL,
    PRIMARY KEY (tenant, aggregate, stream)
);

-- Grows when the transactions of stream_event are written anew: cursors from before are worthless.
ALTER TABLE posthouse.meta ADD COLUMN streams integer NOT NULL DEFAULT 1;

-- As before, and for streams too: a transaction that is not certainly over here counts as one of this server, this one.
-- Positions stay, so that the order of each stream does.
CREATE OR REPLACE FUNCTION posthouse.recover() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    LOCK TABLE posthouse.outbox IN SHARE ROW EXCLUSIVE MODE;
    DELETE FROM posthouse.outbox o USING posthouse.lane l LEFT JOIN posthouse.backlog b ON b.number = l.backlog
    WHERE l.number = o.lane AND o.xid >= pg_snapshot_xmax(pg_current_snapshot())
        AND NOT EXISTS (SELECT 1 FROM posthouse.stuck s WHERE s.id = o.id)
        AND (pg_visible_in_snapshot(o.xid, l.s1)
            OR (b.s2 IS NOT NULL AND pg_visible_in_snapshot(o.xid, b.s2) AND o.id <= b.last_id));
    UPDATE posthouse.outbox SET xid = pg_current_xact_id();
    UPDATE posthouse.stream_event SET xid = pg_current_xact_id()
    WHERE xid >= pg_snapshot_xmin(pg_current_snapshot());
    UPDATE posthouse.lane SET s1 = '1:1:', backlog = NULL, floor = 0, owner = NULL, until = 0, epoch = epoch + 1;
    DELETE FROM posthouse.backlog;
    DELETE FROM posthouse.member;
    DELETE FROM posthouse.incarnation;
    UPDATE posthouse.meta m SET lineage = m.lineage + 1, streams = m.streams + 1, system = p.system,
        timeline = p.timeline,
        database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    FROM posthouse.place() p;
END $$;

SELECT posthouse.guard();
