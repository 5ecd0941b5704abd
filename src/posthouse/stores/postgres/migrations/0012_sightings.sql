-- Who used which version of an event, first and last. Nothing of a tenant is in it.
CREATE TABLE posthouse.sighting (
    role text NOT NULL,
    party text NOT NULL,
    subject text NOT NULL,
    first_at double precision NOT NULL,
    last_at double precision NOT NULL,
    PRIMARY KEY (role, party, subject)
);
