"""moto's server with the rules of SQS FIFO put right that it breaks, in a process of its own.

`python -m tests.kit.servers.sqs_rules <port> <seconds that ids are remembered>`. What moto 5.2 does, and AWS does not:
a message group whose messages timed out begins with the last of them; two requests at the same moment get the same
messages; a receipt works after its time is up; an id is forgotten as soon as its message is deleted; numbers are random;
a poll spins while all that is there is blocked; every message that is sent counts all the others several times; whoever
changes a setting of a queue deletes its policy.
"""

from __future__ import annotations

import copy
import functools
import itertools
import logging
import sys
import time
import uuid

from moto.core.utils import camelcase_to_underscores, unix_time_millis
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from moto.sqs import models
from moto.sqs.exceptions import ReceiptHandleIsInvalid
from werkzeug.serving import run_simple

BEAT = 0.05
"""Seconds after which a poll looks for messages whose time is up."""
remembered = 300.0
numbers = itertools.count(1)


def add_message(queue: models.Queue, message: models.Message) -> None:
    """An id is remembered for its time, also when the message is deleted."""
    with queue._messages_lock:
        scope = message.group_id if vars(queue).get("deduplication_scope") == "messageGroup" else None
        ids = vars(queue).setdefault("remembered_ids", {})
        sent = unix_time_millis()
        if queue.fifo_queue:
            before = ids.get((scope, message.deduplication_id))
            if before is not None and sent - before < remembered * 1000:
                return
            ids[scope, message.deduplication_id] = sent
            message.sequence_number = f"{next(numbers):020d}"
        queue._messages.append(message)
        queue._messages_lock.notify_all()


def receive_message(
    backend: models.SQSBackend, name: str, count: int, wait: int, visibility: int, names: list[str] | None = None
) -> list[models.Message]:
    queue = backend.get_queue(name)
    end = time.monotonic() + wait
    with queue._messages_lock:
        while True:
            taken = [take(message, visibility, names or []) for message in free(queue, count)]
            left = end - time.monotonic()
            if taken or left <= 0:
                return taken
            queue._messages_lock.wait(min(left, BEAT))


def free(queue: models.Queue, count: int) -> list[models.Message]:
    """The next messages; of a group none as long as one of them is in somebody's hands."""
    queue._pending_messages = {message for message in queue._pending_messages if not message.visible}
    blocked = queue.pending_message_groups
    found = itertools.islice(
        (message for message in queue._messages if message.group_id not in blocked and message.visible), count
    )
    messages = list(found)
    queue._pending_messages.update(messages)
    return messages


def take(message: models.Message, visibility: int, names: list[str]) -> models.Message:
    message.mark_received(visibility_timeout=visibility)
    given = copy.copy(message)
    models._filter_message_attributes(given, names)
    return given


def in_hand(queue: models.Queue, receipt: str) -> models.Message:
    """The message that the receipt is for, as long as its time is not up."""
    for message in queue._pending_messages:
        if message.receipt_handle == receipt and not message.visible:
            return message
    raise ReceiptHandleIsInvalid


def delete_message(queue: models.Queue, receipt: str) -> None:
    with queue._messages_lock:
        if receipt in queue.deleted_messages:
            return
        message = in_hand(queue, receipt)
        queue._messages.remove(message)
        queue._pending_messages.discard(message)
        queue.deleted_messages.add(receipt)
        queue._messages_lock.notify_all()


def change_message_visibility(
    backend: models.SQSBackend, queue_name: str, receipt_handle: str, visibility_timeout: int
) -> None:
    queue = backend.get_queue(queue_name)
    with queue._messages_lock:
        message = in_hand(queue, receipt_handle)
        message.change_visibility(visibility_timeout)
        if not int(visibility_timeout):
            message.visible_at -= 1
            queue._pending_messages.discard(message)
        queue._messages_lock.notify_all()


def not_visible(queue: models.Queue) -> int:
    return sum(not message.visible for message in tuple(queue._pending_messages))


def visible(queue: models.Queue) -> int:
    return len(queue._messages) - not_visible(queue)


moto_sets = models.Queue._set_attributes


def _set_attributes(queue: models.Queue, attributes: dict[str, object], now: float | None = None) -> None:
    """A policy that is not mentioned stays."""
    kept = {"Policy": queue.policy} if vars(queue).get("_policy_json") and "Policy" not in attributes else {}
    moto_sets(queue, {**kept, **attributes}, now)


def put_right() -> None:
    counts = {"": visible, "_not_visible": not_visible, "_delayed": lambda queue: 0}  # FIFO queues delay no message
    for what, count in counts.items():
        setattr(models.Queue, f"approximate_number_of_messages{what}", property(count))
    vars(models)["camelcase_to_underscores"] = functools.cache(camelcase_to_underscores)  # half of what a message costs
    vars(models)["generate_receipt_handle"] = lambda: uuid.uuid4().hex  # and a tenth
    find = (
        DomainDispatcherApplication.get_backend_for_host
    )  # reads folders at every request, and all others wait for it
    setattr(DomainDispatcherApplication, find.__name__, functools.cache(find))
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # it writes a line for each
    for owner, rule in (
        (models.Queue, add_message),
        (models.Queue, delete_message),
        (models.Queue, _set_attributes),
        (models.SQSBackend, receive_message),
        (models.SQSBackend, change_message_visibility),
    ):
        setattr(owner, rule.__name__, rule)


if __name__ == "__main__":
    remembered = float(sys.argv[2])
    put_right()
    MotoRequestHandler.protocol_version = "HTTP/1.1"  # connections that stay open, as AWS's do
    application = DomainDispatcherApplication(create_backend_app)
    run_simple("127.0.0.1", int(sys.argv[1]), application, threaded=True, request_handler=MotoRequestHandler)
