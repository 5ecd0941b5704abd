"""Attending: hearing of savepoints on the connections and sessions of libraries that more than one store can join."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from posthouse.store.savepoints import Detach, Savepoints, Step


def attend_sqlalchemy(theirs: Any, savepoints: Savepoints) -> Detach:
    """On a `Session` or `Connection`. A session's nested transaction sets its savepoint with its first statement only, so
    that it is heard of by itself; whoever it is, its statements are."""
    listening: list[tuple[Any, str, Callable[..., None]]] = []
    connection = theirs
    if hasattr(theirs, "get_bind"):
        connection = theirs.connection()
        listening += _of_session(theirs, savepoints)
    listening += _of_connection(connection, savepoints)
    from sqlalchemy import event

    for target, name, function in listening:
        event.listen(target, name, function)

    def end() -> None:
        for target, name, function in listening:
            event.remove(target, name, function)

    return end


def _of_connection(connection: Any, savepoints: Savepoints) -> list[tuple[Any, str, Callable[..., None]]]:
    def see() -> None:
        if connection.dialect.name == "sqlite":
            savepoints.see(connection.connection.driver_connection.in_transaction)

    def ran(_: Any, cursor: Any, statement: str, *rest: Any) -> None:
        see()
        savepoints.hear(statement)

    def failed(context: Any) -> None:
        if context.connection is connection:
            see()
            savepoints.hear_failed(context.statement or "")

    def rolled_back(_: Any) -> None:
        savepoints.hear_of_end()

    see()
    return [
        (connection, "after_cursor_execute", ran),
        (connection, "rollback", rolled_back),
        (connection.engine, "handle_error", failed),
    ]


def _of_session(session: Any, savepoints: Savepoints) -> list[tuple[Any, str, Callable[..., None]]]:
    """What ends without a commit was rolled back."""
    open_ones: set[str] = set()

    def begun(_: Any, nested: Any) -> None:
        if nested.nested:
            open_ones.add(_name(nested))
            savepoints.take(Step("set", _name(nested)))

    def committed(session: Any) -> None:
        nested = session.get_nested_transaction()
        if nested is not None and not nested.is_active:
            open_ones.discard(_name(nested))
            savepoints.take(Step("release", _name(nested)))

    def ended(_: Any, nested: Any) -> None:
        if _name(nested) in open_ones:
            open_ones.discard(_name(nested))
            savepoints.take(Step("roll back", _name(nested)))
            savepoints.take(Step("release", _name(nested)))

    events = (("after_transaction_create", begun), ("after_commit", committed), ("after_transaction_end", ended))
    return [(session, name, function) for name, function in events]


def _name(nested: Any) -> str:
    return f"session {id(nested)}"
