"""When a failed stage is not worth another attempt.

Spark runs a barrier stage again whatever it failed of, four times by default. That is right for a machine that was lost, and a
waste of time for a mistake in a program. The invariant: a stage is ended early only for an error that says what is asked for
cannot be, or for one that two attempts one after the other have ended in; whatever comes of a lost worker is left to Spark. A
caller may assume that a stage that is ended early names the error in what Spark raises, just as one that is not.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from pyspark import SparkContext

from timely.errors import ConfigurationError, GraphError, PeerLostError, SchemaError, TimelyError
from timely.spark.messages import SILENT, describe, revive
from timely.spark.rendezvous import Run

FAILED = "failed"
"""The kind of the message by which a worker says what its stage failed of."""

_HOPELESS = (ConfigurationError, GraphError, SchemaError)

_log = logging.getLogger(__name__)


def failure(error: TimelyError, worker: int, stage: int) -> dict[str, Any]:
    """Return the content of the message about an error."""
    return {"stage": stage, "error": describe(error, worker)}


class Verdict:
    """Listens to what the workers of a run fail of, and cancels a stage that would only fail again."""

    def __init__(self, context: SparkContext, run: Run) -> None:
        self._context = context
        self._last: dict[int, tuple[int, tuple[str, ...]]] = {}
        run.listen(FAILED, self.hear)
        run.listen(SILENT, self.hear_silence)

    def hear(self, worker: int, generation: int, content: dict[str, Any]) -> None:
        """Take in what a worker has failed of; called on the rendezvous's thread."""
        error, stage = revive(content["error"]), int(content["stage"])
        if self.is_final(error, content["error"], stage, generation):
            reason = "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
            threading.Thread(target=self._cancel, args=(stage, reason), name="timely-verdict", daemon=True).start()

    def hear_silence(self, worker: int, generation: int, content: dict[str, Any]) -> None:
        """Have Spark kill the task of a worker that has been declared gone, which may be the only one of its stage and never end.

        The number of a task's attempt is that of its generation, and the worker's place in it.
        """
        arguments = (generation + worker, str(content["why"]))
        threading.Thread(target=self._kill, args=arguments, name="timely-verdict", daemon=True).start()

    def _kill(self, task: int, reason: str) -> None:
        try:
            self._context._jsc.sc().killTaskAttempt(task, True, reason)
        except Exception:  # it has ended, or the session is being stopped
            _log.debug("task %d could not be killed", task, exc_info=True)

    def is_final(self, error: TimelyError, told: dict[str, Any], stage: int, generation: int) -> bool:
        """Return whether a stage that failed of this is not to be tried again."""
        if isinstance(error, PeerLostError):
            return False
        same = tuple(str(told[part]).replace(f"worker {told['worker']} ", "") for part in ("type", "name", "path", "message"))
        before = self._last.get(stage)
        if before is None or before[0] < generation:  # what else is said in an attempt mostly comes of what was said first
            self._last[stage] = generation, same
        return isinstance(error, _HOPELESS) or (before is not None and before[0] < generation and before[1] == same)

    def _cancel(self, stage: int, reason: str) -> None:
        try:
            self._context._jsc.sc().cancelStage(stage, reason)
        except Exception:  # the session is being stopped: nothing is left to cancel
            _log.debug("stage %d could not be cancelled", stage, exc_info=True)
