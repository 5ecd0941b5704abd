-- Alike failures have the same fingerprint, which is empty while nothing failed. `correlation` is the story that an event is
-- part of; NULL where nobody could read it.
ALTER TABLE posthouse_held ADD COLUMN fingerprint TEXT NOT NULL DEFAULT '';
ALTER TABLE posthouse_held ADD COLUMN correlation TEXT;

CREATE INDEX posthouse_held_failure ON posthouse_held (fingerprint, consumer, state, id);
CREATE INDEX posthouse_held_correlation ON posthouse_held (correlation) WHERE correlation IS NOT NULL;

CREATE INDEX posthouse_saga_correlation ON posthouse_saga (correlation) WHERE correlation IS NOT NULL;
CREATE INDEX posthouse_action_event_id ON posthouse_action (event_id) WHERE event_id <> '';

-- How many there are of each failure: the held events again, by what they failed with.
INSERT INTO posthouse_tally (kind, name, topic, state, number)
SELECT 'failure', consumer, fingerprint, state, count(*) FROM posthouse_held GROUP BY consumer, state;

CREATE TRIGGER posthouse_tally_failure_added AFTER INSERT ON posthouse_held BEGIN
    INSERT INTO posthouse_tally (kind, name, topic, state, number) VALUES ('failure', new.consumer, new.fingerprint, new.state, 1)
    ON CONFLICT (kind, name, topic, state) DO UPDATE SET number = number + excluded.number;
END;

CREATE TRIGGER posthouse_tally_failure_gone AFTER DELETE ON posthouse_held BEGIN
    INSERT INTO posthouse_tally (kind, name, topic, state, number) VALUES ('failure', old.consumer, old.fingerprint, old.state, -1)
    ON CONFLICT (kind, name, topic, state) DO UPDATE SET number = number + excluded.number;
END;

CREATE TRIGGER posthouse_tally_failure_changed AFTER UPDATE ON posthouse_held
WHEN old.consumer <> new.consumer OR old.fingerprint <> new.fingerprint OR old.state <> new.state BEGIN
    INSERT INTO posthouse_tally (kind, name, topic, state, number) VALUES ('failure', old.consumer, old.fingerprint, old.state, -1)
    ON CONFLICT (kind, name, topic, state) DO UPDATE SET number = number + excluded.number;
    INSERT INTO posthouse_tally (kind, name, topic, state, number) VALUES ('failure', new.consumer, new.fingerprint, new.state, 1)
    ON CONFLICT (kind, name, topic, state) DO UPDATE SET number = number + excluded.number;
END;
