-- The token of this run; NULL until a relay has leased shards in it.
CREATE FUNCTION posthouse.incarnation() RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT i.token FROM posthouse.incarnation i
        WHERE i.one AND i.xmin = i.maker AND i.started = pg_postmaster_start_time()
            AND i.home = pg_relation_filepath('posthouse.meta'));
END $$;

-- Refuse what was leased in another run.
CREATE FUNCTION posthouse.be_in(run text) RETURNS void LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF posthouse.incarnation() IS DISTINCT FROM run THEN
        RAISE EXCEPTION 'the server has begun another run since the shards were leased: the next lease puts that right'
            USING ERRCODE = 'PH004';
    END IF;
END $$;

-- Whether a cursor has seen transactions that are still to come: it was not written on this server, or the server has
-- forgotten what it said.
CREATE FUNCTION posthouse.is_ahead() RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE
    now_max xid8 := pg_snapshot_xmax(pg_current_snapshot());
BEGIN
    RETURN EXISTS (SELECT 1 FROM posthouse.shard l WHERE pg_snapshot_xmax(l.s1) > now_max)
        OR EXISTS (SELECT 1 FROM posthouse.backlog b WHERE pg_snapshot_xmax(b.s2) > now_max);
END $$;

-- The first lease of a run: nothing that is in flight counts, and nothing is left to what was believed of ids. The cursors
-- stay where this server's log has them: a settle is in the log behind all that it calls ended.
CREATE FUNCTION posthouse.begin_run() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    seen text;
BEGIN
    IF NOT posthouse.at_home() OR posthouse.is_ahead() THEN
        PERFORM posthouse.recover();
    END IF;
    SELECT p.timeline INTO seen FROM posthouse.place() p;
    PERFORM posthouse.new_timeline(seen) FROM posthouse.meta m WHERE m.timeline <> seen;
    UPDATE posthouse.shard SET epoch = epoch + 1, floor = 0;
    UPDATE posthouse.backlog SET floor = 0;
    INSERT INTO posthouse.incarnation (home) VALUES (pg_relation_filepath('posthouse.meta')) ON CONFLICT (one) DO UPDATE
    SET token = excluded.token, started = excluded.started, maker = excluded.maker, home = excluded.home;
    UPDATE posthouse.meta SET runs = runs + 1, run_since = clock_timestamp();
END $$;
