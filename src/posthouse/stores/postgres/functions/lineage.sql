-- Which server this is, as far as it says: changed by dump and restore (system), and by failover (timeline).
CREATE FUNCTION posthouse.place(OUT system text, OUT timeline text) LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        SELECT system_identifier::text INTO system FROM pg_control_system();
    EXCEPTION WHEN insufficient_privilege OR undefined_function OR feature_not_supported THEN
        system := NULL;
    END;
    BEGIN
        timeline := substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8);
    EXCEPTION WHEN insufficient_privilege OR undefined_function OR feature_not_supported THEN
        timeline := NULL;
    END;
END $$;

-- Whether this is the server and the database that the cursors were written on.
CREATE FUNCTION posthouse.at_home() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN (
        SELECT coalesce(m.system = p.system, true)
            AND coalesce(m.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()), true)
        FROM posthouse.meta m, posthouse.place() p);
END $$;

-- The lineage of whatever gets a number now: a server that was promoted, or tables that were restored elsewhere, begin one.
CREATE FUNCTION posthouse.current_lineage(OUT lineage integer) LANGUAGE plpgsql AS $$
DECLARE
    here text := substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8);
    known text;
BEGIN
    SELECT m.lineage, m.timeline INTO lineage, known FROM posthouse.meta m;
    IF known <> here THEN
        lineage := posthouse.new_timeline(here);
    END IF;
    IF posthouse.incarnation() IS NULL THEN
        lineage := posthouse.settle_in();
    END IF;
END $$;

-- The server was promoted: numbers given on the old one and not replicated may be given again, so they get a new
-- lineage. The first who notices changes it, the others wait for that commit and take it over. Producers call this, who
-- may not write here: so it runs as its owner, and believes nobody who says that the server was promoted. How far a rebuild
-- is stands in the log behind what it has read, so that here, too, it has seen only what is here. Whoever remembers more
-- than this server has is refused, and goes on from where it stands.
CREATE FUNCTION posthouse.new_timeline(seen text, OUT lineage integer) LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE posthouse.meta m SET lineage = m.lineage + 1, timeline = seen
    WHERE m.timeline <> seen AND seen = substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8);
    IF FOUND THEN
        UPDATE posthouse.generation g SET cursor = regexp_replace(g.cursor, '^(\d+)\|[^|]*', '\1|' || seen)
        WHERE g.state = 'building';
    END IF;
    SELECT m.lineage INTO lineage FROM posthouse.meta m;
END $$;

-- The lineage of what is said before a relay has leased shards in this run. Tables that were restored into another server or
-- database give numbers again, whoever comes first: so they get a new lineage there, once.
CREATE FUNCTION posthouse.settle_in(OUT lineage integer) LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    here text;
BEGIN
    IF NOT posthouse.at_home() THEN
        SELECT concat_ws(' ', p.system, d.oid) INTO here
        FROM posthouse.place() p, pg_database d WHERE d.datname = current_database();
        UPDATE posthouse.meta m SET lineage = m.lineage + 1, guest = here,
            guest_since = coalesce(m.guest_since, pg_sequence_last_value('posthouse.outbox_id_seq'), 0)
        WHERE m.guest IS DISTINCT FROM here;
    END IF;
    SELECT m.lineage INTO lineage FROM posthouse.meta m;
END $$;

-- The tables were restored into another server, or another database: its transaction ids mean nothing to the cursors.
-- What was certainly sent goes, everything else is sent again, under a new lineage; nothing is lost. In streams a
-- transaction that is not certainly over here counts as one of this server, this one. Positions stay, so that the order of
-- each stream does. What is sent again is counted again, so it is taken from the count: rows behind the cursors, but for those
-- that were written here before a relay came, whose transactions the cursors know nothing of.
CREATE FUNCTION posthouse.recover() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    patience text := current_setting('lock_timeout');
BEGIN
    -- Whoever writes meanwhile may wait for us as well, each with locks that the other wants: we give way, and come again.
    PERFORM set_config('lock_timeout', '100ms', true);
    PERFORM 1 FROM posthouse.meta FOR UPDATE;
    LOCK TABLE posthouse.outbox IN SHARE ROW EXCLUSIVE MODE;
    PERFORM set_config('lock_timeout', patience, true);
    DELETE FROM posthouse.outbox o USING posthouse.shard l LEFT JOIN posthouse.backlog b ON b.number = l.backlog
    WHERE l.number = o.shard AND o.xid >= pg_snapshot_xmax(pg_current_snapshot())
        AND NOT EXISTS (SELECT 1 FROM posthouse.stuck s WHERE s.id = o.id)
        AND (pg_visible_in_snapshot(o.xid, l.s1)
            OR (b.s2 IS NOT NULL AND pg_visible_in_snapshot(o.xid, b.s2) AND o.id <= b.last_id));
    INSERT INTO posthouse.sent AS s (topic, shard, count)
    SELECT o.topic, min(o.shard), -count(*)
    FROM posthouse.meta m CROSS JOIN posthouse.outbox o
        JOIN posthouse.shard l ON l.number = o.shard LEFT JOIN posthouse.backlog b ON b.number = l.backlog
    WHERE (pg_visible_in_snapshot(o.xid, l.s1)
            OR (b.s2 IS NOT NULL AND pg_visible_in_snapshot(o.xid, b.s2) AND o.id <= b.last_id))
        AND (m.guest_since IS NULL OR o.id <= m.guest_since)
        AND NOT EXISTS (SELECT 1 FROM posthouse.stuck s WHERE s.id = o.id)
    GROUP BY o.topic
    ON CONFLICT (topic, shard) DO UPDATE SET count = s.count + excluded.count;
    UPDATE posthouse.outbox SET xid = pg_current_xact_id();
    UPDATE posthouse.stream_event SET xid = pg_current_xact_id()
    WHERE xid >= pg_snapshot_xmin(pg_current_snapshot());
    UPDATE posthouse.stream_archive SET xid = pg_current_xact_id()
    WHERE xid >= pg_snapshot_xmin(pg_current_snapshot());
    UPDATE posthouse.shard SET s1 = '1:1:', backlog = NULL, floor = 0, owner = NULL, until = 0, epoch = epoch + 1;
    DELETE FROM posthouse.backlog;
    DELETE FROM posthouse.member;
    DELETE FROM posthouse.incarnation;
    UPDATE posthouse.meta m SET lineage = m.lineage + 1, streams = m.streams + 1, system = p.system,
        timeline = p.timeline, guest = NULL, guest_since = NULL,
        database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    FROM posthouse.place() p;
END $$;
