"""aiobotocore as a careful user drives it: batches of ten, eight requests side by side, one answer looked at per entry."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session

from posthouse.broker import Frame
from posthouse.brokers.sqs.messages import topic_name
from posthouse.clock import new_id
from tests.kit.servers.sqs import running

TOGETHER = 10
SIDE_BY_SIDE = 8
ARN = "arn:aws:{}:eu-central-1:123456789012:{}"


class SqsBare:
    def __init__(self, sns: Any, sqs: Any) -> None:  # the driver has no types
        self._sns = sns
        self._sqs = sqs
        self._waiting: dict[str, list[str]] = defaultdict(list)

    async def expect(self, topic: str, times: int) -> None:
        for _ in range(times):
            name = f"bare-{new_id()}.fifo"
            settings = {"FifoQueue": "true", "DeduplicationScope": "messageGroup"}
            settings |= {"FifoThroughputLimit": "perMessageGroupId", "VisibilityTimeout": "60"}
            made = await self._sqs.create_queue(QueueName=name, Attributes=settings)
            await self._sns.subscribe(
                TopicArn=ARN.format("sns", topic_name(topic)),
                Protocol="sqs",
                Endpoint=ARN.format("sqs", name),
                Attributes={"RawMessageDelivery": "true"},
            )
            self._waiting[topic].append(made["QueueUrl"])

    async def publish(self, topic: str, frames: Sequence[Frame]) -> None:
        """Without order: ten at a time as they come, which no two of a key are in the frames of this benchmark."""
        arn, batches = ARN.format("sns", topic_name(topic)), [*range(0, len(frames), TOGETHER)]

        async def work() -> None:
            while batches:
                first = batches.pop()
                entries = [
                    {
                        "Id": str(n),
                        "Message": frame.body.decode(),
                        "MessageGroupId": frame.key,
                        "MessageDeduplicationId": frame.id,
                        "MessageAttributes": {
                            name: {"DataType": "String", "StringValue": value} for name, value in frame.headers.items()
                        },
                    }
                    for n, frame in enumerate(frames[first : first + TOGETHER])
                ]
                answer = await self._sns.publish_batch(TopicArn=arn, PublishBatchRequestEntries=entries)
                if answer.get("Failed"):
                    raise RuntimeError(str(answer["Failed"]))

        await asyncio.gather(*(work() for _ in range(SIDE_BY_SIDE)))

    async def consume(self, topic: str, count: int) -> None:
        url = self._waiting[topic].pop()
        left = count

        async def work() -> None:
            nonlocal left
            while left > 0:
                answer = await self._sqs.receive_message(
                    QueueUrl=url, MaxNumberOfMessages=TOGETHER, WaitTimeSeconds=1, MessageAttributeNames=["All"]
                )
                messages = answer.get("Messages", [])
                if messages:
                    entries = [
                        {"Id": str(n), "ReceiptHandle": message["ReceiptHandle"]} for n, message in enumerate(messages)
                    ]
                    answer = await self._sqs.delete_message_batch(QueueUrl=url, Entries=entries)
                    left -= len(answer["Successful"])

        await asyncio.gather(*(work() for _ in range(SIDE_BY_SIDE)))


class SqsPlug:
    """moto, as the tests have it: its own work is most of every figure, so the ratios say more than the rates."""

    @contextlib.contextmanager
    def serving(self) -> Iterator[str]:
        with running() as server:
            yield f"{server.url}&poll=1"  # as the bare client polls; closing waits for it

    @contextlib.asynccontextmanager
    async def bare(self, url: str) -> AsyncIterator[SqsBare]:
        session = get_session()
        given: dict[str, object] = {
            "region_name": "eu-central-1",
            "endpoint_url": parse_qs(urlsplit(url).query)["endpoint"][0],
            "aws_access_key_id": "x",
            "aws_secret_access_key": "y",
            "config": AioConfig(max_pool_connections=64),
        }
        async with session.create_client("sns", **given) as sns, session.create_client("sqs", **given) as sqs:
            yield SqsBare(sns, sqs)
