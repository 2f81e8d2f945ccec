"""A process of a run that is stopped, or whose interpreter hangs, ends the run with an error that names its workers."""

from __future__ import annotations

import math
import os
import signal
import time

import pytest

import timely


def stops(worker: timely.Worker) -> None:
    with worker.dataflow() as scope:
        scope.to_stream(iter([worker.index])).exchange(lambda x: x).probe()
    if worker.index == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    worker.run()


def test_a_stopped_process_ends_the_run() -> None:
    with pytest.raises(timely.WorkerError, match=r"process 1 \(workers 1 to 1\) gave no sign of life for 1 s.*patience="):
        timely.execute(stops, processes=3, patience=1)


def test_a_process_that_works_or_waits_for_long_is_alive() -> None:
    """Its workers step nothing meanwhile: a thread beside them answers."""

    def program(worker: timely.Worker) -> int:
        end = time.monotonic() + 1.5
        while worker.index == 0 and time.monotonic() < end:
            pass
        if worker.index == 1:
            time.sleep(1.5)
        return worker.index

    assert timely.execute(program, processes=2, patience=1) == [0, 1]
    assert timely.execute(lambda worker: worker.index, processes=2, patience=math.inf) == [0, 1]


@pytest.mark.parametrize("patience", [0, -1, math.nan, "long"])
def test_patience_is_a_time(patience: float) -> None:
    with pytest.raises(timely.ConfigurationError, match="patience="):
        timely.execute(lambda worker: None, patience=patience)
