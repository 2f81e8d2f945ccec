"""``execute``: what an operator forks is no worker, though it goes on as if it were one."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import timely
from timely.worker.execution import _own
from timely.worker.shared_memory import SharedMemoryBuffer

ROWS = 200_000
"""So many numbers go through memory that two processes share."""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_copy_that_goes_on_as_the_worker_writes_nothing_into_shared_memory(workers: int) -> None:
    """The original has sent its array, and nobody has read it, when the copy sends another one in its place."""
    sent, gone = os.pipe(), os.pipe()  # told to the copy, and to who is to read
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
            found = arrays.map_batch(lambda array: [(int(array.min()), int(array.max()))]).capture()
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
        return [pair for _, pairs in found.messages for pair in pairs]

    try:
        assert timely.execute(program, workers=workers, processes=2)[0] == [(7, 7)]
    finally:
        for end in (*sent, *gone):
            os.close(end)


def test_memory_of_which_a_piece_is_being_read_is_let_go_of_with_all_the_rest(capfd: pytest.CaptureFixture[str]) -> None:
    """Another thread may be about to copy it out when the program forks."""
    arenas = [SharedMemoryBuffer(1 << 12) for _ in range(3)]
    piece = arenas[1].piece(arenas[1].put(b"a piece") or 0)
    _own.extend(arenas)
    copy = os.fork()
    if copy == 0:
        closed = 0
        for arena in arenas:
            try:
                arena.put(b"another")
            except ValueError:
                closed += 1
        os._exit(closed)
    _own.clear()
    assert os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]) == 3
    assert capfd.readouterr().err == ""
    assert bytes(piece) == b"a piece"
