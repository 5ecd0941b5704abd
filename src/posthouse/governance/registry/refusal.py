"""Refusal: an answer other than yes, in the numbers and words of Confluent's API. Clients read the numbers."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.errors import PosthouseError


class Refusal(PosthouseError):
    """`status` is that of HTTP, `code` goes into the body beside the message."""

    def __init__(self, status: int, code: int, message: str) -> None:
        self.status, self.code = status, code
        super().__init__(message)


def bad_request(message: str) -> Refusal:
    return Refusal(400, 400, message)


def who_are_you() -> Refusal:
    return Refusal(
        401,
        401,
        "Unauthorized: say who you are, as a user of this registry, or with the token or the proxy that it believes",
    )


def not_your_role(needed: str) -> Refusal:
    return Refusal(403, 40301, f"User is denied operation: it needs the role {needed}")


def not_believed(status: int, message: str) -> Refusal:
    """What another door says: it knows somebody who may nothing, believes nobody, or cannot judge now."""
    return Refusal(status, 40301 if status == 403 else status, message)


def subject_not_found(subject: str) -> Refusal:
    return Refusal(404, 40401, f"Subject '{subject}' not found.")


def version_not_found(version: int | str) -> Refusal:
    return Refusal(404, 40402, f"Version {version} not found.")


def schema_not_found(id: int | None = None) -> Refusal:
    return Refusal(404, 40403, "Schema not found" if id is None else f"Schema {id} not found")


def subject_soft_deleted(subject: str) -> Refusal:
    return Refusal(404, 40404, f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently")


def subject_not_soft_deleted(subject: str) -> Refusal:
    return Refusal(404, 40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def version_soft_deleted(subject: str, version: int) -> Refusal:
    return Refusal(
        404,
        40406,
        f"Subject '{subject}' Version {version} was soft deleted. Set permanent=true to delete permanently",
    )


def version_not_soft_deleted(subject: str, version: int) -> Refusal:
    return Refusal(
        404, 40407, f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    )


def compatibility_not_configured(subject: str) -> Refusal:
    return Refusal(404, 40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def mode_not_configured(subject: str) -> Refusal:
    return Refusal(404, 40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, messages: Sequence[str]) -> Refusal:
    return Refusal(
        409,
        409,
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: '
        f"{'; '.join(messages)}",
    )


def wrong_host(host: str) -> Refusal:
    return Refusal(421, 421, f"This registry is asked as localhost or 127.0.0.1, not as {host[:100]!r}")


def other_site(origin: str) -> Refusal:
    return Refusal(403, 403, f"A page of another site sent this: {origin[:100]!r}")


def wrong_body_kind(kind: str) -> Refusal:
    return Refusal(
        415,
        415,
        f"HTTP 415 Unsupported Media Type: {kind[:100]!r}; say `Content-Type: application/vnd.schemaregistry.v1+json`",
    )


def not_acceptable(accept: str) -> Refusal:
    return Refusal(406, 406, f"HTTP 406 Not Acceptable: answers are JSON, and {accept[:100]!r} is asked for")


def too_slow() -> Refusal:
    return Refusal(408, 408, "The body of the request did not come in time")


def too_large(limit: int) -> Refusal:
    return Refusal(413, 413, f"The request is larger than {limit:,} bytes: the registry was started with this limit")


def invalid_schema(message: str) -> Refusal:
    return Refusal(422, 42201, f"Invalid schema: {message}")


def invalid_version(version: str) -> Refusal:
    return Refusal(
        422,
        42202,
        f"The specified version '{version}' is not a valid version id. Allowed values are between [1, 2^31-1] and the "
        'string "latest"',
    )


def invalid_compatibility(level: object) -> Refusal:
    return Refusal(
        422,
        42203,
        f"Invalid compatibility level {level!r}. Valid values are none, backward, forward, full, backward_transitive, "
        "forward_transitive, and full_transitive",
    )


def invalid_mode(mode: object) -> Refusal:
    return Refusal(422, 42204, f"Invalid mode {mode!r}. Valid values are READWRITE, READONLY, and IMPORT")


def not_permitted(message: str) -> Refusal:
    return Refusal(422, 42205, message)


def reference_exists(subject: str, version: int) -> Refusal:
    return Refusal(422, 42206, f"One or more references exist to the schema {{subject={subject},version={version}}}")


def id_does_not_match(message: str) -> Refusal:
    return Refusal(422, 42207, message)


def invalid_subject(subject: str, why: str) -> Refusal:
    return Refusal(422, 42208, f"The specified subject '{subject}' is not a valid subject: {why}")


def not_kept(part: str) -> Refusal:
    return Refusal(422, 42210, f"This registry keeps no {part}: leave it out, or the schema would not do what it says")


def store_failed(message: str) -> Refusal:
    return Refusal(500, 50001, f"Error in the backend data store: {message}")


def timed_out(seconds: float) -> Refusal:
    return Refusal(500, 50002, f"The operation took longer than {seconds:g} s and was given up")


def ending() -> Refusal:
    return Refusal(503, 503, "the registry is being ended; ask again")
