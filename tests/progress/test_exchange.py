"""One worker's end of the exchange of progress, alone.

Workers that exchange batches in any order are in ``tests/proofs``, and whole dataflows in ``tests/testing/test_simulator.py``.
"""

from __future__ import annotations

from typing import Any

import pytest

from timely.errors import ConfigurationError, ProgressError
from timely.progress import ProgressBatch, ProgressExchange, Target


def test_flush_sends_nothing_when_all_cancels() -> None:
    exchange: ProgressExchange[str] = ProgressExchange(0, 2)
    assert exchange.flush() is None
    exchange.changes.extend([("a", 1), ("b", 1), ("a", -1)])
    exchange.changes.update("b", -1)
    assert exchange.flush() is None
    exchange.changes.update("a", 2)
    assert exchange.flush() == ProgressBatch(0, 0, (("a", 2),))
    exchange.changes.update("b", -1)
    assert exchange.flush() == ProgressBatch(0, 1, (("b", -1),))


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        (ProgressBatch(0, 0, ()), "worker 1 expected progress batch 1 of worker 0 but got 0: it was delivered before"),
        (ProgressBatch(0, 2, ()), "worker 1 expected progress batch 1 of worker 0 but got 2: batches were lost"),
        (ProgressBatch(1, 0, ()), "worker 1 got its own progress batch 0: a worker counts its own"),
        (ProgressBatch(3, 0, ()), "worker 1 got a progress batch of worker 3, but the run's workers are 0 to 2"),
        (ProgressBatch(-1, 0, ()), "worker 1 got a progress batch of worker -1"),
    ],
)
def test_batches_out_of_place_are_refused(batch: ProgressBatch[str], says: str) -> None:
    exchange: ProgressExchange[str] = ProgressExchange(1, 3)
    assert exchange.receive(ProgressBatch(0, 0, (("a", 1),))) == (("a", 1),)
    with pytest.raises(ProgressError, match=says):
        exchange.receive(batch)
    assert exchange.receive(ProgressBatch(0, 1, (("a", -1),))) == (("a", -1),)
    assert exchange.receive(ProgressBatch(2, 0, (("b", 1),))) == (("b", 1),)


@pytest.mark.parametrize(("index", "peers"), [(0, 0), (2, 2), (-1, 2)])
def test_a_worker_is_one_of_its_peers(index: int, peers: int) -> None:
    with pytest.raises(ConfigurationError, match="there is no worker"):
        ProgressExchange(index, peers)
    assert (ProgressExchange(1, 2).index, ProgressExchange(1, 2).peers) == (1, 2)


def test_a_merged_batch_counts_as_many_as_it_was_made_of() -> None:
    first, second, third = (ProgressBatch(0, number, ((Target(1, 0), 1),)) for number in range(3))
    other: ProgressExchange[Any] = ProgressExchange(1, 2)
    assert other.receive(first.merged([second])) == ((Target(1, 0), 2),)
    with pytest.raises(ProgressError, match="expected progress batch 2 of worker 0 but got 1: it was delivered before"):
        other.receive(second)
    assert other.receive(third) == third.updates
