-- Which run of the server this is. A snapshot may name transactions that never reached the log; after a crash or a
-- promotion their numbers, and those of sequences, are given out again. So what one run said is never written to another:
-- whoever leases lanes is told the token of the run, and every poll and settle says it again. The server itself empties
-- the table when it recovers and when it is promoted, also when only its sessions were restarted. The row is good only
-- where and while it was written: a restart, also that of an old copy of the disk, changes `started`, a dump brings
-- `maker` without its transaction, and a database that was made of another one (TEMPLATE) lies in another place.
CREATE UNLOGGED TABLE posthouse.incarnation (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    token text NOT NULL DEFAULT gen_random_uuid()::text,
    started timestamptz NOT NULL DEFAULT pg_postmaster_start_time(),
    maker xid NOT NULL DEFAULT pg_current_xact_id()::xid,
    home text NOT NULL
);

-- How many runs relays have seen, and since when this one; for people.
ALTER TABLE posthouse.meta ADD COLUMN runs integer NOT NULL DEFAULT 0, ADD COLUMN run_since timestamptz;

-- Where facts were said before a relay came, if that is not where the cursors were written.
ALTER TABLE posthouse.meta ADD COLUMN guest text;

-- The token of this run; NULL until a relay has leased lanes in it.
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
        RAISE EXCEPTION 'the server has begun another run since the lanes were leased: the next lease puts that right'
            USING ERRCODE = 'PH004';
    END IF;
END $$;

-- Whether a cursor has seen transactions that are still to come: it was not written on this server, or the server has
-- forgotten what it said.
CREATE FUNCTION posthouse.is_ahead() RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE
    now_max xid8 := pg_snapshot_xmax(pg_current_snapshot());
BEGIN
    RETURN EXISTS (SELECT 1 FROM posthouse.lane l WHERE pg_snapshot_xmax(l.s1) > now_max)
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
    UPDATE posthouse.lane SET epoch = epoch + 1, floor = 0;
    UPDATE posthouse.backlog SET floor = 0;
    INSERT INTO posthouse.incarnation (home) VALUES (pg_relation_filepath('posthouse.meta')) ON CONFLICT (one) DO UPDATE
    SET token = excluded.token, started = excluded.started, maker = excluded.maker, home = excluded.home;
    UPDATE posthouse.meta SET runs = runs + 1, run_since = clock_timestamp();
END $$;

-- As before, and for rebuilds too: how far one is stands in the log behind what it has read, so that here, too, it has seen
-- only what is here. Whoever remembers more than this server has is refused, and goes on from where it stands.
CREATE OR REPLACE FUNCTION posthouse.new_timeline(seen text, OUT lineage integer) LANGUAGE plpgsql
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

-- The lineage of what is said before a relay has leased lanes in this run. Tables that were restored into another server or
-- database give numbers again, whoever comes first: so they get a new lineage there, once.
CREATE FUNCTION posthouse.settle_in(OUT lineage integer) LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    here text;
BEGIN
    IF NOT posthouse.at_home() THEN
        SELECT concat_ws(' ', p.system, d.oid) INTO here
        FROM posthouse.place() p, pg_database d WHERE d.datname = current_database();
        UPDATE posthouse.meta m SET lineage = m.lineage + 1, guest = here WHERE m.guest IS DISTINCT FROM here;
    END IF;
    SELECT m.lineage INTO lineage FROM posthouse.meta m;
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
