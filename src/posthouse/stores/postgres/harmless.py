"""Harmless: statements that leave nothing behind in the session, as far as their words tell."""

from __future__ import annotations

import functools
import re

from posthouse.store.wording import statements_in
from posthouse.stores.sessions.refusing import refuse_ending

VERB = re.compile(r"(SELECT|INSERT|UPDATE|DELETE|MERGE|WITH|VALUES)\b", re.IGNORECASE)
LITERAL = re.compile(r"'(?:[^']|'')*'")
COLUMNS = re.compile(r"\bINTO\s+[\w$.\"]+(?:\s+AS\s+\w+)?\s*\(", re.IGNORECASE)
"""The columns that an INSERT names are no arguments."""
BEFORE_PARENTHESIS = re.compile(r"([\w$.\"]+)\s*\(")

WORDS = frozenset(
    [
        "all",
        "and",
        "any",
        "array",
        "as",
        "between",
        "by",
        "case",
        "cast",
        "coalesce",
        "conflict",
        "cube",
        "distinct",
        "else",
        "except",
        "exists",
        "extract",
        "filter",
        "from",
        "greatest",
        "group",
        "having",
        "in",
        "intersect",
        "interval",
        "is",
        "join",
        "lateral",
        "least",
        "like",
        "limit",
        "materialized",
        "not",
        "nullif",
        "offset",
        "on",
        "or",
        "over",
        "rollup",
        "row",
        "select",
        "set",
        "sets",
        "some",
        "then",
        "union",
        "using",
        "values",
        "when",
        "where",
        "with",
        "within",
        "char",
        "decimal",
        "numeric",
        "time",
        "timestamp",
        "timestamptz",
        "varchar",
    ]
)
"""What stands before a parenthesis and calls nothing that a user could have made."""
KNOWN = frozenset(
    [
        "abs",
        "array_agg",
        "array_append",
        "array_length",
        "array_position",
        "array_remove",
        "avg",
        "bool_and",
        "bool_or",
        "cardinality",
        "ceil",
        "ceiling",
        "char_length",
        "clock_timestamp",
        "concat",
        "concat_ws",
        "convert_from",
        "convert_to",
        "count",
        "cume_dist",
        "current_setting",
        "date_part",
        "date_trunc",
        "decode",
        "dense_rank",
        "encode",
        "extract",
        "first_value",
        "floor",
        "format",
        "gen_random_uuid",
        "generate_series",
        "hashtext",
        "initcap",
        "json_agg",
        "json_build_object",
        "jsonb_agg",
        "jsonb_array_elements",
        "jsonb_array_elements_text",
        "jsonb_array_length",
        "jsonb_build_array",
        "jsonb_build_object",
        "jsonb_each",
        "jsonb_each_text",
        "jsonb_object_agg",
        "jsonb_object_keys",
        "jsonb_set",
        "jsonb_strip_nulls",
        "jsonb_typeof",
        "lag",
        "last_value",
        "lead",
        "left",
        "length",
        "lower",
        "lpad",
        "ltrim",
        "make_interval",
        "max",
        "md5",
        "min",
        "mod",
        "nextval",
        "now",
        "ntile",
        "octet_length",
        "percent_rank",
        "pg_backend_pid",
        "pg_sleep",
        "position",
        "power",
        "random",
        "rank",
        "regexp_match",
        "regexp_matches",
        "regexp_replace",
        "regexp_split_to_array",
        "repeat",
        "replace",
        "right",
        "round",
        "row_number",
        "row_to_json",
        "rpad",
        "rtrim",
        "sha256",
        "sign",
        "split_part",
        "sqrt",
        "statement_timestamp",
        "strpos",
        "string_agg",
        "string_to_array",
        "substr",
        "substring",
        "sum",
        "to_char",
        "to_date",
        "to_json",
        "to_jsonb",
        "to_number",
        "to_timestamp",
        "transaction_timestamp",
        "trim",
        "trunc",
        "txid_current",
        "unnest",
        "upper",
        "uuidv4",
        "uuidv7",
        "version",
    ]
)
"""PostgreSQL's own functions that change nothing in the session."""


@functools.lru_cache(maxsize=1024)
def leaves_nothing(sql: str) -> bool:
    """Whether a statement leaves nothing behind in the session; StoreError for one that would end the transaction. A call of
    a function that is not known may: its words do not say what it does."""
    refuse_ending(sql)
    statements = [*statements_in(sql)]
    if len(statements) != 1 or "\\" in sql or not VERB.match(statements[0]):
        return False
    bare = COLUMNS.sub(", (", LITERAL.sub("''", statements[0]))
    return all(_is_known(name.lower()) for name in BEFORE_PARENTHESIS.findall(bare))


def _is_known(name: str) -> bool:
    return name in WORDS or name.removeprefix("pg_catalog.") in KNOWN
