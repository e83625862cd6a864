"""`CdcConsumer`: follows tables, calls a handler for each change, keeps checkpoints."""

from cdc_reader.consumer.config import ConsumerConfig, OnError
from cdc_reader.consumer.consumer import CdcConsumer

__all__ = ["CdcConsumer", "ConsumerConfig", "OnError"]
