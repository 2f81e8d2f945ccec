"""A worker that runs out of memory says which input holds most, and at which time."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import timely


def never(_: Any, info: timely.OperatorInfo) -> Callable[..., None]:
    return lambda input, output: None


def greedy(batch: Any) -> list[int]:
    raise MemoryError


def test_who_holds_most_is_named_with_the_time() -> None:
    def program(worker: timely.Worker) -> None:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            stream.unary(timely.Pipeline, "hoard", never)
            stream.filter(lambda record: len(record) < 10).unary(timely.Pipeline, "small hoard", never)
            stream.filter(lambda record: record == "now").map(greedy)
        for time, size in enumerate((1000, 300_000, 2000)):
            handle.send_batch([f"{number:0{size}d}" for number in range(10)])
            handle.advance_to(time + 1)
        worker.step()
        handle.send("now")
        worker.step()

    for workers in (1, 2):
        with pytest.raises(timely.OutOfMemoryError, match="operator 'map · greedy'") as caught:
            timely.execute(program, workers=workers)
        [note] = [note for note in caught.value.__notes__ if "held by" in note]
        held = r"Most of it is held by input 0 of operator 'hoard' \(/dataflow0/hoard#1\) on worker \d: about 2\.9 MB"
        assert re.match(held, note)  # of the worker that came first
        assert "2.9 MB in 10 records at time 1; 'hoard' was built at test_memory_accounts.py:" in note
