-- The tables whose rows belong to tenants, the partitions of partitioned ones among them.
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
