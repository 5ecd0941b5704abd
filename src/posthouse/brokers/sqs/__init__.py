"""AWS SNS and SQS as the broker: a FIFO topic for each topic, a FIFO queue for each group that reads it."""

from posthouse.brokers.sqs.broker import SqsBroker

__all__ = ["SqsBroker"]
