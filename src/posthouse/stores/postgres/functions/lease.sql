-- Renew what `holder` has, and take or give up shards so that the relays that are alive hold equal shares. Relays take
-- turns here; shards with an open backlog are taken first. A backlog of which somebody else has shards too becomes two.
CREATE FUNCTION posthouse.lease(holder text, seconds double precision, now_given double precision)
RETURNS TABLE (number smallint, epoch bigint, run text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    moment double precision;
    share integer;
    mine integer;
    shared bigint;
    own bigint;
    -- One that ends later was given by a clock that was set back since.
    longest constant double precision := greatest(seconds, 3600);
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('posthouse.lease', 0));
    moment := coalesce(now_given, extract(epoch FROM clock_timestamp())::double precision);
    IF posthouse.incarnation() IS NULL OR posthouse.is_ahead() THEN
        PERFORM posthouse.begin_run();
    END IF;
    run := posthouse.incarnation();

    INSERT INTO posthouse.member (owner, until) VALUES (holder, moment + seconds)
    ON CONFLICT (owner) DO UPDATE SET until = excluded.until;
    DELETE FROM posthouse.member m WHERE m.until <= moment OR m.until > moment + longest;
    SELECT ceil(count(*)::numeric / (SELECT count(*) FROM posthouse.member)), count(*) FILTER (WHERE l.owner = holder)
    INTO share, mine FROM posthouse.shard l;
    UPDATE posthouse.shard l SET owner = NULL, until = 0 WHERE l.number IN (
        SELECT k.number FROM posthouse.shard k WHERE k.owner = holder ORDER BY k.number OFFSET share);
    UPDATE posthouse.shard l SET owner = holder, epoch = l.epoch + 1 WHERE l.number IN (
        SELECT k.number FROM posthouse.shard k WHERE k.owner IS NULL
            OR (k.owner <> holder AND (k.until <= moment OR k.until > moment + longest))
        ORDER BY k.backlog IS NULL, k.number LIMIT greatest(share - mine, 0) FOR UPDATE SKIP LOCKED);
    FOR shared IN
        SELECT DISTINCT l.backlog FROM posthouse.shard l JOIN posthouse.shard k ON k.backlog = l.backlog
        WHERE l.owner = holder AND k.owner IS DISTINCT FROM holder
    LOOP
        INSERT INTO posthouse.backlog (s2, last_id, hi_id, floor)
        SELECT b.s2, b.last_id, b.hi_id, b.floor FROM posthouse.backlog b WHERE b.number = shared
        RETURNING number INTO own;
        UPDATE posthouse.shard l SET backlog = own WHERE l.owner = holder AND l.backlog = shared;
    END LOOP;
    RETURN QUERY
    UPDATE posthouse.shard l SET until = moment + seconds WHERE l.owner = holder RETURNING l.number, l.epoch, run;
END $$;

-- Whether `holder` holds each of these shards under its epoch, in the run of the server in which it leased them.
CREATE FUNCTION posthouse.holds(holder text, numbers smallint[], epochs bigint[], run text, moment double precision)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN posthouse.incarnation() IS NOT DISTINCT FROM run AND cardinality(numbers) = (
        SELECT count(*) FROM unnest(numbers, epochs) AS w (number, epoch)
        JOIN posthouse.shard l ON l.number = w.number AND l.epoch = w.epoch
        WHERE l.owner = holder AND l.until > moment);
END $$;
