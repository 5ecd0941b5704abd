"""Leaps: lists of some kinds along an index that tells kinds apart, read from the first of each kind to the first of the next.

A walk along all ids could pass over millions of others, and an index for every filter would cost whoever writes. What is in the
order of the index need not be sorted: `PINNED` keeps the planner to it, whatever it knows of the table.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

PINNED = """
SELECT set_config('statement_timeout', $1, true), set_config('jit', 'off', true), set_config('enable_seqscan', 'off', true),
    set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true),
    set_config('enable_incremental_sort', 'off', true), set_config('enable_hashjoin', 'off', true),
    set_config('enable_mergejoin', 'off', true), set_config('plan_cache_mode', 'force_custom_plan', true)
"""
"""For the transaction of a look; its parameter is how many milliseconds a statement may take."""


class Index(msgspec.Struct, frozen=True):
    """An index of a table: `columns` make a kind, `last` is in order within it. It may be a partial one."""

    table: str
    columns: Sequence[str]
    last: str
    where: str = "true"


def kinds(index: Index, firsts: str | None = None, fixed: Sequence[str] = ()) -> str:
    """The relation `kind`, for WITH RECURSIVE: which kinds there are. With `firsts`, an array, only those whose first column is one
    of these, and whose next ones are `fixed`, each as given."""
    columns = _list("h", index.columns)
    if firsts is None:
        first = f"(SELECT {columns} FROM {index.table} h WHERE {index.where} ORDER BY {columns} LIMIT 1)"
        behind = f"({columns}) > ({_list('k', index.columns)})"
        order = columns
    else:
        head, rest = index.columns[0], index.columns[1 + len(fixed) :]
        order = _list("h", rest or (head,))
        same = "".join(f" AND h.{column} = {place}" for column, place in zip(index.columns[1:], fixed, strict=False))
        first = f"""
            SELECT n.* FROM unnest({firsts}::text[]) f (first) CROSS JOIN LATERAL (
                SELECT {columns} FROM {index.table} h WHERE {index.where} AND h.{head} = f.first{same} ORDER BY {order} LIMIT 1) n"""
        if not rest:
            return f"kind AS ({first})"
        behind = f"h.{head} = k.{head}{same} AND ({order}) > ({_list('k', rest)})"
    return f"""kind AS (
        {first}
        UNION ALL SELECT n.* FROM kind k CROSS JOIN LATERAL (
            SELECT {columns} FROM {index.table} h WHERE {index.where} AND {behind} ORDER BY {order} LIMIT 1) n)"""


def listed(
    index: Index,
    *,
    firsts: str | None,
    fixed: Sequence[str] = (),
    of: Sequence[str],
    asked: Sequence[str],
    after: str,
    limit: str,
    newest: bool,
) -> str:
    """The last columns of those behind `after`, in order: of kinds `k` for which `of` holds, and of rows `h` for which `asked`
    does. Both are to be told by conditions that no index answers."""
    whole = (*index.columns, index.last)
    down, beyond, back = ("DESC", "<", ">=") if newest else ("ASC", ">", "<=")
    order = ", ".join(f"h.{column} {down}" for column in whole)
    rows = " AND ".join(
        (
            index.where,
            f"({_list('h', whole)}) {beyond} ({_list('k', index.columns)}, {after}::bigint)",
            f"({_list('h', index.columns)}) {back} ({_list('k', index.columns)})",
            *asked,
        )
    )
    return f"""
        WITH RECURSIVE {kinds(index, firsts, fixed)}
        SELECT e.{index.last} FROM kind k CROSS JOIN LATERAL (
            SELECT h.{index.last} FROM {index.table} h WHERE {rows} ORDER BY {order} LIMIT {limit}) e
        WHERE {" AND ".join(of) or "true"} ORDER BY e.{index.last} {down} LIMIT {limit}"""


def _list(table: str, columns: Sequence[str]) -> str:
    return ", ".join(f"{table}.{column}" for column in columns)
