"""Calling the handler: again if it fails, and what becomes of a change that it cannot take."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import tenacity

from cdc_reader.change import Change
from cdc_reader.consumer.config import ConsumerConfig, OnError
from cdc_reader.errors import HandlerError
from cdc_reader.logs import get_logger
from cdc_reader.metrics import HANDLER_ERRORS, HANDLER_RETRIES, Recorder

log = get_logger(__name__)

Handler = Callable[[Change], object]
"""Deals with a change; when it returns, the change counts as acknowledged."""
DeadLetter = Callable[[Change, Exception], object]
"""Takes a change that the handler could not take, and the handler's last error."""

_LONGEST_PAUSE = 60.0


class Handling:
    """Deals with changes, from several threads; `stopping` ends the waiting for another try."""

    def __init__(
        self,
        handler: Handler,
        dead_letter: DeadLetter | None,
        config: ConsumerConfig,
        recorder: Recorder,
        stopping: threading.Event,
    ) -> None:
        self._handler = handler
        self._dead_letter = dead_letter
        self._config = config
        self._recorder = recorder
        self._stopping = stopping

    def handle(self, change: Change) -> bool:
        """Whether the change is dealt with; False if it failed while the consumer was stopping.

        Raises HandlerError if the change is to stop the consumer.
        """
        try:
            self._handler(change)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises
            return self._try_again(change, error)
        return True

    def _try_again(self, change: Change, first: Exception) -> bool:
        attempts = self._attempts(change)
        failed = iter([first])

        def attempt() -> None:
            for error in failed:
                raise error
            self._handler(change)

        try:
            attempts(attempt)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises
            if self._stopping.is_set():
                log.warning("handler_given_up_to_stop", **_facts(change), error=repr(error))
                return False
            self._give_up(change, error)
        return True

    def _attempts(self, change: Change) -> tenacity.Retrying:
        return tenacity.Retrying(
            stop=tenacity.stop_any(
                tenacity.stop_after_attempt(self._config.attempts),
                tenacity.stop_when_event_set(self._stopping),
            ),
            wait=tenacity.wait_random_exponential(
                self._config.pause.total_seconds(), _LONGEST_PAUSE
            ),
            sleep=tenacity.sleep_using_event(self._stopping),
            before_sleep=partial(self._note, change),
            reraise=True,
        )

    def _note(self, change: Change, state: tenacity.RetryCallState) -> None:
        self._recorder.add(HANDLER_RETRIES, change.table)
        error = state.outcome and state.outcome.exception()
        log.warning(
            "handler_retry", **_facts(change), attempt=state.attempt_number, error=repr(error)
        )

    def _give_up(self, change: Change, error: Exception) -> None:
        self._recorder.add(HANDLER_ERRORS, change.table)
        if self._dead_letter is not None:
            self._bury(self._dead_letter, change, error)
        elif self._config.on_error == OnError.SKIP:
            log.error("change_skipped", **_facts(change), error=repr(error))
        else:
            raise HandlerError(
                f"the handler failed {self._config.attempts} times on {_text(change)}: {error!r}"
            ) from error

    def _bury(self, dead_letter: DeadLetter, change: Change, error: Exception) -> None:
        log.warning("change_dead_lettered", **_facts(change), error=repr(error))
        try:
            dead_letter(change, error)
        except Exception as its_error:
            raise HandlerError(
                f"dead_letter failed on {_text(change)}: {its_error!r}"
            ) from its_error


def _facts(change: Change) -> dict[str, str]:
    """Which change it is: no values but its key."""
    return {
        "table": str(change.table),
        "key": str(dict(change.key)),
        "written_at": change.written_at.isoformat(),
    }


def _text(change: Change) -> str:
    facts = _facts(change)
    return f"{change.operation} of {facts['table']} {facts['key']} at {facts['written_at']}"
