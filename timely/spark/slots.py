"""How many workers a dataflow gets where the program does not say: as many as the session has slots for.

The invariant: a cluster that is still starting is not taken for a small one. Its executors are awaited, in the session's first
minute, until all that its settings promise are there, or no more have come for a while. Slots that streams hold do not count.
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from timely.errors import SparkError
from timely.spark.connect import connect_settings, connect_slots, is_connect
from timely.spark.session import concurrent_tasks, context_of, is_local
from timely.spark.settings import EXECUTORS_APPEAR_WITHIN, require_settings

if TYPE_CHECKING:  # not in the client of Spark Connect alone
    from pyspark import SparkContext

_SETTLED = 5.0
"""Seconds without a further executor after which a cluster whose size nothing promises is taken to be all there."""

_log = logging.getLogger(__name__)

_lock = threading.Lock()
_reserved: WeakKeyDictionary[SparkContext, int] = WeakKeyDictionary()


def settle(session: SparkSession, workers: int | None, default: int | None = None, *, stays: bool = False) -> int:
    """Return how many workers there are: ``workers``, else ``default``, else as many as there are slots that no stream holds.

    ``SparkError`` unless the session can run them. A stream ``stays`` up: it cannot wait for slots that other streams hold, and
    leaves one slot to Spark's own tasks.
    """
    if is_connect(session):
        chosen = default if workers is None else workers
        chosen = max(_slots_through_connect(session) - stays, 1) if chosen is None else chosen
        require_settings(session, chosen, int(stays))
        return chosen
    context = context_of(session)
    asked, workers = workers, default if workers is None else workers
    reserved = _reserved.get(context, 0) if stays or workers is None else 0
    spare = reserved + stays
    if workers is None:
        workers = max(_slots(context, spare) - spare, 1)
    try:
        require_settings(session, workers, spare)
    except SparkError as error:
        if reserved:
            raise SparkError(f"{error}. Streams of this session hold {reserved} of them, for as long as they are up") from error
        if asked is None and default is not None:
            raise SparkError(f"{error}. The setting spark.timely.workers asks for {default} workers") from error
        raise
    return workers


def _slots_through_connect(session: SparkSession) -> int:
    slots = connect_slots(session, connect_settings(session))
    if slots is None:
        raise SparkError(
            "how many task slots there are cannot be asked for through Spark Connect while spark.default.parallelism or "
            "spark.sql.leafNodeDefaultParallelism is set: say how many workers there are to be (workers=)"
        )
    return max(slots, 1)


@contextlib.contextmanager
def reserve(context: SparkContext, slots: int) -> Iterator[None]:
    """Count so many slots as held by a stream, as long as the block runs."""
    with _lock:
        _reserved[context] = _reserved.get(context, 0) + slots
    try:
        yield
    finally:
        with _lock:
            _reserved[context] -= slots


def _slots(context: SparkContext, needless: int) -> int:
    """Return how many slots there are, once all expected executors have come; more than ``needless``, if possible."""
    slots = concurrent_tasks(context)
    setting = context.getConf().get
    if is_local(context) or str(setting("spark.dynamicAllocation.enabled", "false")).strip().lower() == "true":
        return slots  # of executors that come and go with the work there is, the check says that they will not do
    most, sure = _expected(str(context.master), setting)
    now = changed = time.monotonic()
    patient = now + EXECUTORS_APPEAR_WITHIN
    young = patient - (time.time() - context.startTime / 1000)
    while slots < most and now < (young if slots > needless else patient):
        if not sure and slots > needless and now - changed >= _SETTLED:
            break
        time.sleep(0.2)
        now, before, slots = time.monotonic(), slots, concurrent_tasks(context)
        changed = changed if slots == before else now
    if sure and slots < most:
        _log.warning("the settings of the session promise %d slots, and there are %d", most, slots)
    return slots


def _expected(master: str, setting: Callable[[str, str], Any]) -> tuple[float, bool]:
    """Return how many slots the settings of a cluster promise, and whether that is sure, rather than at most."""
    cpus = int(setting("spark.task.cpus", "1"))
    if (match := re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,.*\]", master)) is not None:
        return int(match[1]) * (int(match[2]) // cpus), True
    if master.startswith("spark://"):  # which gives all that it has, and of this most at most
        most = int(setting("spark.cores.max", "0"))
        return (most // cpus, False) if most else (math.inf, False)
    executors = int(setting("spark.executor.instances", "2" if master.startswith(("yarn", "k8s")) else "0"))
    cores = int(setting("spark.executor.cores", "1"))
    return (executors * (cores // cpus), True) if executors else (math.inf, False)
