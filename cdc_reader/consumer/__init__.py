"""`CdcConsumer` follows tables, calls a handler for each change, and keeps checkpoints.

This package may import `reader` and the packages below it. Begin with `consumer`, then `runtime`.
"""

from cdc_reader.consumer.config import ConsumerConfig, OnError, OnHeld
from cdc_reader.consumer.consumer import CdcConsumer

__all__ = ["CdcConsumer", "ConsumerConfig", "OnError", "OnHeld"]
