-- The generations of read models. `owner` fills one that is being built, until a time. Nothing of a tenant is in it.
CREATE TABLE posthouse.generation (
    projection text NOT NULL,
    number integer NOT NULL,
    version integer NOT NULL,
    state text NOT NULL,
    source text NOT NULL,
    phase text NOT NULL,
    tables text[] NOT NULL,
    cursor text NOT NULL,
    read bigint NOT NULL,
    owner text NOT NULL,
    until double precision NOT NULL,
    made_at double precision NOT NULL,
    live_at double precision NOT NULL,
    retired_at double precision NOT NULL,
    drop_at double precision,
    event_at double precision NOT NULL,
    applied_at double precision NOT NULL,
    PRIMARY KEY (projection, number)
) WITH (fillfactor = 50);

-- One that is read and one that is being built, at most.
CREATE UNIQUE INDEX generation_state ON posthouse.generation (projection, state) WHERE state <> 'retired';

-- Up to which version each stream was read in bulk: what comes again from the broker is known by it.
CREATE TABLE posthouse.overlap (
    tenant text NOT NULL,
    projection text NOT NULL,
    number integer NOT NULL,
    aggregate text NOT NULL,
    stream text NOT NULL,
    version bigint NOT NULL,
    PRIMARY KEY (tenant, projection, number, aggregate, stream)
);

SELECT posthouse.guard();
