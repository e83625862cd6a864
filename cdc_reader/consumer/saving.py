"""A checkpoint store whose failures that may pass are tried again."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import TypeVar

from cdc_reader.metrics import CHECKPOINT_RETRIES, Recorder
from cdc_reader.ports import CheckpointStore
from cdc_reader.progress import Checkpoint, CheckpointName
from cdc_reader.retry import retry

T = TypeVar("T")


class RetryingCheckpoints:
    """The `CheckpointStore` that asks `store` again, up to `deadline`."""

    def __init__(self, store: CheckpointStore, deadline: timedelta, recorder: Recorder) -> None:
        self._store = store
        self._deadline = deadline
        self._recorder = recorder
        self.is_broken = False
        """Whether it failed for good: asking it again would only take time."""

    def load(self, name: CheckpointName) -> Checkpoint | None:
        """See `CheckpointStore.load`."""
        return self._retry(name, partial(self._store.load, name))

    def save(self, name: CheckpointName, checkpoint: Checkpoint) -> None:
        """See `CheckpointStore.save`."""
        self._retry(name, partial(self._store.save, name, checkpoint))

    def close(self) -> None:
        """See `CheckpointStore.close`."""
        self._store.close()

    def _retry(self, name: CheckpointName, action: Callable[[], T]) -> T:
        def pause(seconds: float) -> None:
            self._recorder.add(CHECKPOINT_RETRIES, name.table)
            time.sleep(seconds)

        try:
            return retry(action, self._deadline, pause)
        except BaseException:
            self.is_broken = True
            raise
