-- Unique keys look past row-level security: with the tenant first, nobody can find or take what is another tenant's.
ALTER TABLE posthouse.key DROP CONSTRAINT key_pkey, ADD CONSTRAINT key_pkey PRIMARY KEY (tenant, topic, key);

ALTER TABLE posthouse.head
    DROP CONSTRAINT head_pkey, ADD CONSTRAINT head_pkey PRIMARY KEY (tenant, consumer, topic, key);

ALTER TABLE posthouse.inbox
    DROP CONSTRAINT inbox_pkey, ADD CONSTRAINT inbox_pkey PRIMARY KEY (tenant, consumer, event_id);

ALTER TABLE posthouse.stuck DROP CONSTRAINT stuck_pkey, ADD CONSTRAINT stuck_pkey PRIMARY KEY (tenant, id);

CREATE INDEX stuck_by_id ON posthouse.stuck (id);

ALTER TABLE posthouse.timer DROP CONSTRAINT timer_pkey, DROP CONSTRAINT timer_tenant_name_key,
    ADD CONSTRAINT timer_pkey PRIMARY KEY (tenant, name);

CREATE INDEX timer_by_id ON posthouse.timer (id);

ALTER TABLE posthouse.held DROP CONSTRAINT held_pkey, ADD CONSTRAINT held_pkey PRIMARY KEY (tenant, id);

CREATE INDEX held_by_id ON posthouse.held (id);

DROP INDEX posthouse.held_waiting, posthouse.held_ordered, posthouse.held_unordered;

CREATE UNIQUE INDEX held_waiting ON posthouse.held (tenant, consumer, topic, key, sequence)
    WHERE sequence IS NOT NULL AND state IN ('retrying', 'gap', 'blocked', 'dead');

CREATE UNIQUE INDEX held_ordered ON posthouse.held (tenant, consumer, topic, key, sequence, event_id)
    WHERE sequence IS NOT NULL;

CREATE UNIQUE INDEX held_unordered ON posthouse.held (tenant, consumer, event_id) WHERE sequence IS NULL;

-- Park rows that the broker refused, or that wait behind one; part of a settle.
CREATE OR REPLACE FUNCTION posthouse.park(
    now_given double precision, ids bigint[], lanes smallint[], topics text[], tenants text[], keys text[],
    tries integer[], firsts double precision[], afters double precision[], errors text[], quarantines boolean[]
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    moment double precision := coalesce(now_given, extract(epoch FROM clock_timestamp())::double precision);
BEGIN
    INSERT INTO posthouse.stuck (id, lane, topic, tenant, key, attempts, first_at, next_at, error, quarantined)
    SELECT v.id, v.lane, v.topic, v.tenant, v.key, v.tries, CASE WHEN v.first_at = 0 THEN moment ELSE v.first_at END,
        moment + v.after, v.error, v.quarantined
    FROM unnest(ids, lanes, topics, tenants, keys, tries, firsts, afters, errors, quarantines)
        AS v (id, lane, topic, tenant, key, tries, first_at, after, error, quarantined)
    ON CONFLICT (tenant, id) DO NOTHING;
    RETURN true;
END $$;

-- The server was promoted: numbers given on the old one and not replicated may be given again, so they get a new
-- lineage. The first who notices changes it, the others wait for that commit and take it over. Producers call this, who
-- may not write here: so it runs as its owner, and believes nobody who says that the server was promoted.
CREATE OR REPLACE FUNCTION posthouse.new_timeline(seen text, OUT lineage integer) LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE posthouse.meta m SET lineage = m.lineage + 1, timeline = seen
    WHERE m.timeline <> seen AND seen = substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8);
    SELECT m.lineage INTO lineage FROM posthouse.meta m;
END $$;

-- The tables whose rows belong to tenants, the leaves of partitioned ones among them.
CREATE FUNCTION posthouse.tenant_tables() RETURNS SETOF regclass LANGUAGE sql STABLE AS $$
    SELECT c.oid::regclass FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
    WHERE c.relnamespace = '{schema}'::regnamespace AND c.relkind IN ('r', 'p')
        AND a.attname = 'tenant' AND NOT a.attisdropped
    ORDER BY c.oid
$$;

-- Put every one of them under row-level security. A session sees and writes the rows of the tenant in its setting
-- posthouse.tenant, and none where that is not set. As long as nobody has asked for isolation a second policy lets
-- everybody see everything; afterwards the owner is held to the policies too. A migration that adds a table with tenants
-- calls this at its end.
CREATE FUNCTION posthouse.guard() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    isolated boolean := EXISTS (SELECT 1 FROM pg_policy p
        WHERE p.polname = 'runtime' AND p.polrelid IN (SELECT posthouse.tenant_tables()));
    name regclass;
BEGIN
    FOR name IN SELECT posthouse.tenant_tables() LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', name);
        IF NOT EXISTS (SELECT 1 FROM pg_policy p WHERE p.polrelid = name AND p.polname = 'tenant') THEN
            EXECUTE format('CREATE POLICY tenant ON %s '
                'USING (tenant = NULLIF(current_setting(''posthouse.tenant'', true), ''''))', name);
        END IF;
        IF isolated THEN
            EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', name);
            EXECUTE format('DROP POLICY IF EXISTS everybody ON %s', name);
        ELSIF NOT EXISTS (SELECT 1 FROM pg_policy p WHERE p.polrelid = name AND p.polname = 'everybody') THEN
            EXECUTE format('CREATE POLICY everybody ON %s USING (true)', name);
        END IF;
    END LOOP;
END $$;

-- From now on only the role of the runtime sees the rows of all tenants. Its functions come from nowhere but us and
-- PostgreSQL: one of the same name that somebody put into another schema would run with its rights.
CREATE FUNCTION posthouse.isolate(runtime text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    name regclass;
BEGIN
    FOR name IN SELECT posthouse.tenant_tables() LOOP
        EXECUTE format('DROP POLICY IF EXISTS runtime ON %s', name);
        EXECUTE format('CREATE POLICY runtime ON %s TO %I USING (true)', name, runtime);
    END LOOP;
    PERFORM posthouse.guard();
    BEGIN
        EXECUTE format('ALTER ROLE %I IN DATABASE %I SET search_path = pg_catalog, pg_temp', runtime, current_database());
    EXCEPTION WHEN insufficient_privilege THEN
        RAISE WARNING 'the search_path of % could not be set: ALTER ROLE % SET search_path = pg_catalog, pg_temp',
            runtime, quote_ident(runtime);
    END;
END $$;

SELECT posthouse.guard();
