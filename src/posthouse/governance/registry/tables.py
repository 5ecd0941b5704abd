"""The tables of a registry, in SQL that SQLite and PostgreSQL both understand. `{bytes}` is the type of bytes,
`{place}` the prefix of a table where SQLite wants none."""

from __future__ import annotations

FORMAT = 1
"""The number of this layout; a ledger with a higher one belongs to a later release."""

# One row: the layout, and the highest id that was ever given. The counter is part of each registration's transaction,
# so a refused one takes no id, and no id is given twice, not even after its schema was deleted.
COUNTER = """
CREATE TABLE IF NOT EXISTS posthouse_registry.counter (
    one integer PRIMARY KEY CHECK (one = 1),
    format integer NOT NULL,
    last_id integer NOT NULL
)
"""

# One row per distinct schema. `fingerprint` is what makes two texts the same schema, `normal` what makes two schemas the
# same for those who ask with normalize=true; `compiled` is the schema with its references in one piece, as comparisons
# read it.
SCHEMAS = """
CREATE TABLE IF NOT EXISTS posthouse_registry.schemas (
    id integer PRIMARY KEY,
    fingerprint text NOT NULL UNIQUE,
    normal text NOT NULL,
    type text NOT NULL,
    text text NOT NULL,
    compiled {bytes} NOT NULL
)
"""

# What a schema refers to, in the order it was given.
LINKS = """
CREATE TABLE IF NOT EXISTS posthouse_registry.links (
    schema_id integer NOT NULL REFERENCES {place}schemas (id),
    place integer NOT NULL,
    name text NOT NULL,
    subject text NOT NULL,
    version integer NOT NULL,
    PRIMARY KEY (schema_id, place)
)
"""

# The versions of a subject.
VERSIONS = """
CREATE TABLE IF NOT EXISTS posthouse_registry.versions (
    subject text NOT NULL,
    version integer NOT NULL,
    schema_id integer NOT NULL REFERENCES {place}schemas (id),
    deleted integer NOT NULL DEFAULT 0,
    PRIMARY KEY (subject, version)
)
"""

# The highest version that a subject ever had; the row goes with the subject.
SUBJECTS = """
CREATE TABLE IF NOT EXISTS posthouse_registry.subjects (
    subject text PRIMARY KEY,
    last_version integer NOT NULL
)
"""

# Compatibility and mode: of a subject, or of all (the empty subject).
SETTINGS = """
CREATE TABLE IF NOT EXISTS posthouse_registry.settings (
    subject text PRIMARY KEY,
    compatibility text,
    mode text
)
"""

# By which schema: which subjects have it.
VERSIONS_BY_SCHEMA = "CREATE INDEX IF NOT EXISTS versions_by_schema ON {place}versions (schema_id)"

# By what is referred to: who refers to it.
LINKS_BY_SUBJECT = "CREATE INDEX IF NOT EXISTS links_by_subject ON {place}links (subject, version)"

# The counter's row, once.
FIRST_ROW = "INSERT INTO posthouse_registry.counter (one, format, last_id) VALUES (1, $1, 0) ON CONFLICT DO NOTHING"

# Which layout this ledger has.
LAYOUT = "SELECT format FROM posthouse_registry.counter"

TABLES = (COUNTER, SCHEMAS, LINKS, VERSIONS, SUBJECTS, SETTINGS)
INDEXES = (VERSIONS_BY_SCHEMA, LINKS_BY_SUBJECT)
