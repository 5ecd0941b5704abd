-- Sagas: where each stands. Whoever takes a turn locks its row. Most updates touch no indexed column and stay in the page.
CREATE TABLE posthouse.saga (
    number bigint GENERATED ALWAYS AS IDENTITY,
    tenant text NOT NULL,
    saga text NOT NULL,
    id text NOT NULL,
    status text NOT NULL,
    turn integer NOT NULL,
    reason text NOT NULL,
    started_at double precision NOT NULL,
    changed_at double precision NOT NULL,
    ended_at double precision,
    progress text NOT NULL,
    state text NOT NULL,
    PRIMARY KEY (tenant, saga, id)
) WITH (fillfactor = 70);

CREATE INDEX saga_by_number ON posthouse.saga (number);

CREATE INDEX saga_status ON posthouse.saga (saga, status);

-- For forgetting those that ended.
CREATE INDEX saga_ended_at ON posthouse.saga (ended_at) WHERE ended_at IS NOT NULL;

-- The history of each: one record per turn, as JSON.
CREATE TABLE posthouse.saga_turn (
    tenant text NOT NULL,
    number bigint NOT NULL,
    turn integer NOT NULL,
    record text NOT NULL,
    PRIMARY KEY (tenant, number, turn)
);

SELECT posthouse.guard();
