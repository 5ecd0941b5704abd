-- What the tally says: its sum, and the lines that were not summed up yet.
CREATE FUNCTION posthouse.tallied() RETURNS TABLE (kind text, name text, topic text, state text, number bigint)
LANGUAGE sql STABLE AS $$
    SELECT t.kind, t.name, t.topic, t.state, sum(t.number)::bigint
    FROM (SELECT * FROM posthouse.tally UNION ALL SELECT * FROM posthouse.tally_change) t
    GROUP BY t.kind, t.name, t.topic, t.state HAVING sum(t.number) <> 0
$$;

-- What it should say of what is there: everything is counted.
CREATE FUNCTION posthouse.counted() RETURNS TABLE (kind text, name text, topic text, state text, number bigint)
LANGUAGE sql STABLE AS $$
    SELECT 'held', h.consumer, h.topic,
        CASE WHEN h.type = '' AND h.state IN ('quarantined', 'skipped') THEN 'strange ' || h.state ELSE h.state END, count(*)
    FROM posthouse.held h GROUP BY 1, 2, 3, 4
    UNION ALL SELECT 'failure', h.consumer, h.fingerprint, h.state, count(*) FROM posthouse.held h GROUP BY 1, 2, 3, 4
    UNION ALL SELECT 'stuck', '', s.topic, CASE WHEN s.quarantined THEN 'refused' ELSE 'waiting' END, count(*)
    FROM posthouse.stuck s GROUP BY 1, 2, 3, 4
    UNION ALL SELECT 'timer', '', '', '', count(*) FROM posthouse.timer t HAVING count(*) > 0
    UNION ALL SELECT 'saga', s.saga, '', s.status, count(*) FROM posthouse.saga s WHERE s.purged_at IS NULL GROUP BY 1, 2, 3, 4
$$;

-- Count everything and put the tally right, for one that was changed behind our backs, such as by a copy of tables without
-- their triggers. Whoever writes to these tables waits until the transaction ends. How many figures were wrong. Where tenants are
-- kept apart, only the runtime's role sees what is to be counted.
CREATE FUNCTION posthouse.recount() RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    wrong integer;
BEGIN
    IF NOT posthouse.sees_all() THEN
        RAISE EXCEPTION 'row-level security hides events from %', current_user
            USING ERRCODE = 'insufficient_privilege', HINT = 'Call it as the role that the runtime connects with.';
    END IF;
    LOCK TABLE posthouse.held, posthouse.stuck, posthouse.timer, posthouse.saga IN SHARE MODE;
    INSERT INTO posthouse.tally_change (kind, name, topic, state, number)
    SELECT d.kind, d.name, d.topic, d.state, sum(d.number) FROM (
        SELECT c.kind, c.name, c.topic, c.state, c.number FROM posthouse.counted() c
        UNION ALL SELECT t.kind, t.name, t.topic, t.state, -t.number FROM posthouse.tallied() t WHERE t.kind <> 'ended') d
    GROUP BY d.kind, d.name, d.topic, d.state HAVING sum(d.number) <> 0;
    GET DIAGNOSTICS wrong = ROW_COUNT;
    RETURN wrong;
END $$;

-- Rows come in and go by the statement, however many: one line for each kind. Most updates change no kind: then no trigger is called.
CREATE FUNCTION posthouse.tally_held() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO posthouse.tally_change (kind, name, topic, state, number)
    SELECT 'held', c.consumer, c.topic,
        CASE WHEN c.type = '' AND c.state IN ('quarantined', 'skipped') THEN 'strange ' || c.state ELSE c.state END,
        CASE TG_OP WHEN 'INSERT' THEN count(*) ELSE -count(*) END
    FROM changed c GROUP BY 2, 3, 4
    UNION ALL SELECT 'failure', c.consumer, c.fingerprint, c.state, CASE TG_OP WHEN 'INSERT' THEN count(*) ELSE -count(*) END
    FROM changed c GROUP BY 2, 3, 4;
    RETURN NULL;
END $$;

CREATE FUNCTION posthouse.tally_held_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO posthouse.tally_change (kind, name, topic, state, number)
    SELECT 'held', c.consumer, c.topic,
        CASE WHEN c.type = '' AND c.state IN ('quarantined', 'skipped') THEN 'strange ' || c.state ELSE c.state END, c.number
    FROM (VALUES (OLD.consumer, OLD.topic, OLD.state, OLD.type, -1), (NEW.consumer, NEW.topic, NEW.state, NEW.type, 1))
        AS c (consumer, topic, state, type, number)
    WHERE (OLD.consumer, OLD.topic, OLD.state, OLD.type) IS DISTINCT FROM (NEW.consumer, NEW.topic, NEW.state, NEW.type)
    UNION ALL SELECT 'failure', c.consumer, c.fingerprint, c.state, c.number
    FROM (VALUES (OLD.consumer, OLD.fingerprint, OLD.state, -1), (NEW.consumer, NEW.fingerprint, NEW.state, 1))
        AS c (consumer, fingerprint, state, number)
    WHERE (OLD.consumer, OLD.fingerprint, OLD.state) IS DISTINCT FROM (NEW.consumer, NEW.fingerprint, NEW.state);
    RETURN NULL;
END $$;

CREATE TRIGGER tally_added AFTER INSERT ON posthouse.held REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION posthouse.tally_held();
CREATE TRIGGER tally_gone AFTER DELETE ON posthouse.held REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION posthouse.tally_held();
CREATE TRIGGER tally_changed AFTER UPDATE ON posthouse.held FOR EACH ROW
    WHEN ((OLD.consumer, OLD.topic, OLD.state, OLD.type, OLD.fingerprint)
        IS DISTINCT FROM (NEW.consumer, NEW.topic, NEW.state, NEW.type, NEW.fingerprint))
    EXECUTE FUNCTION posthouse.tally_held_change();

CREATE FUNCTION posthouse.tally_stuck() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO posthouse.tally_change (kind, name, topic, state, number)
    SELECT 'stuck', '', c.topic, CASE WHEN c.quarantined THEN 'refused' ELSE 'waiting' END,
        CASE TG_OP WHEN 'INSERT' THEN count(*) ELSE -count(*) END
    FROM changed c GROUP BY 3, 4;
    RETURN NULL;
END $$;

CREATE FUNCTION posthouse.tally_stuck_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO posthouse.tally_change (kind, name, topic, state, number)
    VALUES ('stuck', '', OLD.topic, CASE WHEN OLD.quarantined THEN 'refused' ELSE 'waiting' END, -1),
        ('stuck', '', NEW.topic, CASE WHEN NEW.quarantined THEN 'refused' ELSE 'waiting' END, 1);
    RETURN NULL;
END $$;

CREATE TRIGGER tally_added AFTER INSERT ON posthouse.stuck REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION posthouse.tally_stuck();
CREATE TRIGGER tally_gone AFTER DELETE ON posthouse.stuck REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION posthouse.tally_stuck();
CREATE TRIGGER tally_changed AFTER UPDATE ON posthouse.stuck FOR EACH ROW
    WHEN ((OLD.topic, OLD.quarantined) IS DISTINCT FROM (NEW.topic, NEW.quarantined))
    EXECUTE FUNCTION posthouse.tally_stuck_change();

CREATE FUNCTION posthouse.tally_timer() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO posthouse.tally_change (kind, name, topic, state, number)
    SELECT 'timer', '', '', '', CASE TG_OP WHEN 'INSERT' THEN count(*) ELSE -count(*) END FROM changed HAVING count(*) > 0;
    RETURN NULL;
END $$;

CREATE TRIGGER tally_added AFTER INSERT ON posthouse.timer REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION posthouse.tally_timer();
CREATE TRIGGER tally_gone AFTER DELETE ON posthouse.timer REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION posthouse.tally_timer();

-- Sagas come and change one by one. One that ended counts as ended for ever, also when it is purged; and each time that it rests with
-- a part undone.
CREATE FUNCTION posthouse.tally_saga() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' AND OLD.purged_at IS NULL THEN
        INSERT INTO posthouse.tally_change (kind, name, topic, state, number) VALUES ('saga', OLD.saga, '', OLD.status, -1);
    END IF;
    IF TG_OP <> 'DELETE' AND NEW.purged_at IS NULL THEN
        INSERT INTO posthouse.tally_change (kind, name, topic, state, number) VALUES ('saga', NEW.saga, '', NEW.status, 1);
    END IF;
    IF TG_OP <> 'DELETE' AND NEW.status IN ('completed', 'compensated', 'cancelled', 'partial') AND (TG_OP = 'INSERT' OR OLD.status <> NEW.status) THEN
        INSERT INTO posthouse.tally_change (kind, name, topic, state, number) VALUES ('ended', NEW.saga, '', NEW.status, 1);
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER tally_added AFTER INSERT ON posthouse.saga FOR EACH ROW EXECUTE FUNCTION posthouse.tally_saga();
CREATE TRIGGER tally_gone AFTER DELETE ON posthouse.saga FOR EACH ROW
    WHEN (OLD.purged_at IS NULL) EXECUTE FUNCTION posthouse.tally_saga();
CREATE TRIGGER tally_changed AFTER UPDATE ON posthouse.saga FOR EACH ROW
    WHEN ((OLD.saga, OLD.status, OLD.purged_at IS NULL) IS DISTINCT FROM (NEW.saga, NEW.status, NEW.purged_at IS NULL))
    EXECUTE FUNCTION posthouse.tally_saga();

-- A table that is truncated has nothing any more. Nobody else can have written to it meanwhile.
CREATE FUNCTION posthouse.tally_truncated() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO posthouse.tally_change (kind, name, topic, state, number)
    SELECT t.kind, t.name, t.topic, t.state, -t.number FROM posthouse.tallied() t
    WHERE t.kind = TG_TABLE_NAME OR (t.kind = 'failure' AND TG_TABLE_NAME = 'held');
    RETURN NULL;
END $$;

CREATE TRIGGER tally_truncated AFTER TRUNCATE ON posthouse.held EXECUTE FUNCTION posthouse.tally_truncated();
CREATE TRIGGER tally_truncated AFTER TRUNCATE ON posthouse.stuck EXECUTE FUNCTION posthouse.tally_truncated();
CREATE TRIGGER tally_truncated AFTER TRUNCATE ON posthouse.timer EXECUTE FUNCTION posthouse.tally_truncated();
CREATE TRIGGER tally_truncated AFTER TRUNCATE ON posthouse.saga EXECUTE FUNCTION posthouse.tally_truncated();
