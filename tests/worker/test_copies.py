"""``execute``: what an operator forks is no worker, though it goes on as if it were one."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import timely

ROWS = 200_000
"""More than a connection takes at once."""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_copy_that_goes_on_as_the_worker_sends_nothing(workers: int) -> None:
    """The original has sent its array, and nobody has read it, when the copy sends another one in its place."""
    sent, gone = os.pipe(), os.pipe()  # wake the copy, and who is to read
    copies: list[int] = []

    def twice(capability: Any, info: timely.OperatorInfo) -> Callable[..., None]:
        def logic(input: Any, output: Any) -> None:
            for cap, batch in input:
                for record in batch:
                    copies.append(os.fork())
                    if copies == [0]:
                        os.read(sent[0], 1)
                    output.session(cap).give_batch(np.full(ROWS, record + (copies == [0])))

        return logic

    def program(worker: timely.Worker) -> list[tuple[int, int]]:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            arrays = stream.unary(timely.Pipeline, "twice", twice).exchange(lambda array: 0 * array)
            captured = arrays.map_batch(lambda array: [(int(array.min()), int(array.max()))]).capture()
        if worker.index == worker.peers - 1:
            handle.send(7)
            worker.step()
            os.write(sent[1], b"!")
            os.waitpid(copies[0], 0)
            os.write(gone[1], b"!")
        elif worker.index == 0:
            os.read(gone[0], 1)
        handle.close()
        worker.run()
        return [pair for _, pairs in captured.messages for pair in pairs]

    try:
        assert timely.execute(program, workers=workers, processes=2)[0] == [(7, 7)]
    finally:
        for end in (*sent, *gone):
            os.close(end)
