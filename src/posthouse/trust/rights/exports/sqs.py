"""SNS and SQS: one IAM policy for the role of each account."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256

import msgspec

from posthouse.trust.rights.account import Account, Files

LONGEST_QUEUE = 75
"""Letters of a name, without its ending."""
GENERATIONS = 20
"""Of a read model, that may have queues: a name may be cut, so that no pattern fits all."""
_NAME = re.compile(r"[A-Za-z0-9_]+(?:[.-][A-Za-z0-9_]+)*")
TOPICS = "arn:aws:sns:*:*:"
QUEUES = "arn:aws:sqs:*:*:"
LOOK = ("sns:GetTopicAttributes", "sns:ListTagsForResource")
MAKE = ("sns:CreateTopic", "sns:TagResource")
SUBSCRIBE = ("sns:Subscribe", "sns:ListSubscriptionsByTopic")
READ = (
    "sqs:CreateQueue", "sqs:TagQueue", "sqs:GetQueueUrl", "sqs:GetQueueAttributes", "sqs:SetQueueAttributes", "sqs:ReceiveMessage",
    "sqs:DeleteMessage", "sqs:ChangeMessageVisibility",
)  # fmt: skip


def sqs(accounts: Sequence[Account]) -> Files:
    return {f"{account.name}.json": policy(account) for account in accounts}


def policy(account: Account) -> str:
    """Attach it to the role that the service runs as. Account and region are left open: say yours in place of the stars."""
    topics, groups = [f"{TOPICS}{topic_name(topic)}" for topic in account.published], account.places
    queues = [f"{QUEUES}{queue_name(group, topic)}" for group, topic in groups]
    generations = range(2, GENERATIONS + 1)
    queues += [
        f"{QUEUES}{queue_name(f'{model}.g{n}', topic)}"
        for model, read in account.models.items()
        for topic in read
        for n in generations
    ]
    heard = [f"{TOPICS}{topic_name(topic)}" for topic in account.read]
    statements = [
        _allow("Publish", ("sns:Publish", *LOOK, *(() if account.foreign else MAKE)), topics),
        _allow("Subscribe", (*SUBSCRIBE, *LOOK), heard),
        _allow("Read", READ, queues),
    ]
    said = {"Version": "2012-10-17", "Statement": [one for one in statements if one["Resource"]]}
    return msgspec.json.format(msgspec.json.encode(said), indent=2).decode() + "\n"


def topic_name(topic: str) -> str:
    """As the adapter calls it."""
    return f"{_plain(topic)}.fifo"


def queue_name(group: str, topic: str) -> str:
    """As the adapter calls it; too long a name is cut, and then has a number."""
    words, plain = f"{group}__{topic}", f"{_plain(group)}__{_plain(topic)}"
    if len(plain) <= LONGEST_QUEUE and words.count("__") == 1 and "___" not in words and _NAME.fullmatch(group):
        return f"{plain}.fifo"
    mark = sha256(f"{group}\n{topic}".encode()).hexdigest()[:12]
    return f"{re.sub('[^A-Za-z0-9_]', '-', words)[: LONGEST_QUEUE - 13]}-{mark}.fifo"


def _plain(name: str) -> str:
    plain = name.replace(".", "-")
    return f"{plain}-{sha256(name.encode()).hexdigest()[:12]}" if "-" in name else plain


def _allow(sid: str, actions: Sequence[str], resources: list[str]) -> dict[str, object]:
    return {"Sid": sid, "Effect": "Allow", "Action": list(actions), "Resource": resources}
