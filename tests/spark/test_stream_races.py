"""Several drivers of one stream, at every moment: an epoch is delivered as one thing, whoever delivers it.

White box: the log of a stream's epochs has no public name, and a protocol that lacks a rule exists nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyspark")

from tests.support.store_races import HDFS, LOCAL_FILES, OBJECTS, Guarantees, StoreRace, sample_stores
from timely.errors import CheckpointError
from timely.recovery import MemoryStore, Store
from timely.recovery.ownership import Ownership
from timely.spark.streaming import epoch_log
from timely.spark.streaming.epoch_log import EpochLog, File, process_epoch

KINDS = [LOCAL_FILES, OBJECTS, HDFS]


class Driver:
    """The steps of one driver of a stream, whose epochs have a file named after it."""

    def __init__(self, index: int) -> None:
        self.index = index

    def ingest(self, epoch: int) -> list[File]:
        return [File(f"in {epoch} of {self.index}", 1)]

    def compute(self, epoch: int) -> dict[str, list[File]]:
        return {"all": [File(f"out of {file.name}", 1) for file in self.log.inputs(epoch)]}

    def deliver(self, epoch: int, outputs: Any) -> None:
        """Note that it is about to be delivered, which has happened before ``EpochLog.deliver`` returns."""
        self.delivered(epoch, outputs["all"][0].name)

    log: EpochLog
    delivered: Callable[[int, str], None]


class Streams:
    """Drivers of one stream, each of which does its epochs; what was delivered for an epoch is the same ever after."""

    def __init__(self, drivers: int, epochs: int, kind: Guarantees, **how: Any) -> None:
        self.how = drivers, epochs, kind, how
        self.delivered: dict[int, set[str]] = {}
        self.noted: set[int] = set()

    def make(self, random: Random | None = None) -> StoreRace:
        """Return a new race."""
        drivers, epochs, kind, how = self.how
        delivered: dict[int, set[str]] = {}
        noted: set[int] = set()
        self.delivered, self.noted = delivered, noted

        def program(store: Any) -> None:
            steps = Driver(store.index)
            steps.delivered = lambda epoch, name: delivered.setdefault(epoch, set()).add(name)
            try:
                steps.log = EpochLog(store)
                while steps.log.delivered < epochs - 1:
                    epoch = steps.log.delivered + 1
                    process_epoch(steps.log, epoch, steps)
                    noted.add(epoch)
                    if epoch:
                        steps.log.forget(epoch - 1)
            except CheckpointError:
                pass

        ranks = None if random is None else random.sample(range(drivers), drivers)
        return StoreRace([program] * drivers, {}, kind, **{"ranks": ranks, **how})

    def check(self, race: StoreRace) -> None:
        """See what the next driver would deliver."""
        for failure in race.failures():
            raise failure
        log = EpochLog(MemoryStore(race.files))
        assert log.delivered >= max(self.noted, default=-1), "an epoch was noted as delivered, and comes again"
        for epoch, names in self.delivered.items():
            assert len(names) == 1, f"epoch {epoch} was delivered as {sorted(names)}"
            if epoch > log.delivered:
                assert log.outputs(epoch)["all"][0].name in names, f"epoch {epoch} was delivered, and will be another"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_three_drivers_of_a_stream(kind: Guarantees) -> None:
    streams = Streams(3, 2, kind, faults=2, retries=2)
    sample_stores(streams.make, streams.check, seed=3, races=60)


def unchecked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ownership, "check", lambda self, *, besides=None: self.store.names())


def read_before_the_claim(patch: pytest.MonkeyPatch) -> None:
    claim, seen = Ownership.claim, {}

    def claim_later(store: Store) -> Ownership:
        result = epoch_log._newest(store, store.names())
        owner = claim(store)
        seen[owner.run] = result
        return owner

    patch.setattr(Ownership, "claim", claim_later)
    patch.setattr(EpochLog, "_read", lambda self: seen[self._owner.run])


@pytest.mark.parametrize("broken", [unchecked, read_before_the_claim])
def test_without_a_rule_an_epoch_is_delivered_twice_differently(
    broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    streams = Streams(3, 2, OBJECTS, faults=1, retries=2)
    with pytest.raises(AssertionError, match="was delivered|noted as delivered"):
        sample_stores(streams.make, streams.check, seed=1, races=600)
