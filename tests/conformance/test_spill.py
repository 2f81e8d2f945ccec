"""Queues that spill (docs/conformance.md, workers).

White box: from outside nobody sees which batches of an input are on disk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from timely.dataflow.spill import SpillQueue


@pytest.mark.parametrize("entries", [1, 2, 4, 9])
def test_W8_a_threshold_of_zero_pages_all_but_the_last(entries: int) -> None:
    queue: SpillQueue[int] = SpillQueue(0, 0, "an input")
    batches = [np.full(10, number, np.uint8) for number in range(entries)]
    for number, batch in enumerate(batches):
        queue.append((number, batch, len(batch)))
    assert (queue.paged, queue.resident) == (entries - 1, 10)
    collected = list(queue)
    assert [batch is collected[number][1] for number, batch in enumerate(batches)] == [False] * (entries - 1) + [True]
    assert [batch.tolist() for _, batch, _ in collected] == [batch.tolist() for batch in batches]
    queue.clear()


def test_W8_a_threshold_that_is_not_reached_pages_nothing() -> None:
    queue: SpillQueue[int] = SpillQueue(1 << 40, 0, "an input")
    for number in range(4):
        queue.append((number, [b"x" * 1000], 1))
    assert (len(queue), queue.paged) == (4, 0)


def filled(kind: str, size: int, number: int) -> Any:
    """A container of so many bytes, no two alike."""
    array = np.full(size, number, np.uint8)
    return array if kind == "array" else [array.tobytes()]


@pytest.mark.parametrize("kind", ["array", "list"])
@pytest.mark.parametrize(("size", "total", "reserve"), [(64, 512, 128), (64, 512, 512), (1000, 512, 128), (1, 512, 0)])
def test_W9_what_was_spilled_comes_back_in_order(kind: str, size: int, total: int, reserve: int) -> None:
    queue: SpillQueue[int] = SpillQueue(total, reserve, "an input")
    for number in range(100):
        queue.append((number, filled(kind, size, number), size))
        assert queue.resident <= max(total, reserve + 2 * size + 100)
    if size > 1:
        assert queue.paged > 80
    for number in range(100):
        time, batch, records = queue.popleft()
        assert (time, records, bytes(batch[0] if kind == "list" else batch)) == (number, size, bytes([number]) * size)
    assert (len(queue), queue.paged, queue.resident) == (0, 0, 0)


def test_W9_the_oldest_stay_in_memory_up_to_the_reserve() -> None:
    queue: SpillQueue[int] = SpillQueue(512, 128, "an input")
    batches = [filled("array", 64, number) for number in range(100)]
    for number, batch in enumerate(batches):
        queue.append((number, batch, 64))
    in_memory = [number for number, (_, batch, _) in enumerate(queue) if batch is batches[number]]
    assert in_memory[:2] == [0, 1]  # 128 bytes
    assert in_memory[2:] == list(range(100 - len(in_memory[2:]), 100))  # and the newest, below the threshold
    assert len(in_memory) <= 8
    queue.clear()
