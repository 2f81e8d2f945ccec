"""The epoch log of a stream, without Spark: whatever dies whenever, each epoch is delivered in order, once, with the same rows.

The driver is played by ``process_epoch`` itself, on notes that end the process at any write, before or after it has happened; the
source, the query and the workers by a few lines each. The one exception that is allowed is the one that the documentation names.

White box: no run of Spark can be made to die at each single write.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely.errors import CheckpointError, OperatorError
from timely.recovery import MemoryStore
from timely.spark.streaming.epoch_log import EpochLog, File, Outputs, Stage, files_of, process_epoch

ROWS = (3, 1, 4, 1, 5, 9, 2, 6)
"""What the source has for each epoch: one number, which the dataflow adds up."""


class Death(Exception):
    """The process ends here."""


@attrs.define
class Fuse:
    """Ends the process after so many steps that matter, and again after so many more."""

    lengths: list[int]

    def burn(self) -> None:
        if self.lengths:
            self.lengths[0] -= 1
            if self.lengths[0] < 0:
                del self.lengths[0]
                raise Death


class MortalLogFiles(MemoryStore):
    """Notes during whose writes the process may end, before or after."""

    def __init__(self, fuse: Fuse) -> None:
        super().__init__()
        self.fuse = fuse

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        self.fuse.burn()
        super().write(name, chunks)
        self.fuse.burn()

    def delete(self, name: str) -> None:
        self.fuse.burn()
        super().delete(name)
        self.fuse.burn()


@attrs.define
class World:
    """What outlives a process: files, the workers' checkpoints, the query's own memory, and what was handed over to whom."""

    store: MortalLogFiles
    fuse: Fuse
    files: dict[str, int] = attrs.field(factory=dict)
    checkpoints: list[tuple[int, int]] = attrs.field(factory=lambda: [(0, 0)])
    done: int = 0
    seen: list[tuple[int, int]] = attrs.field(factory=list)
    noted: list[int] = attrs.field(factory=list)
    lives: int = 0


class Process:
    """One life of the driver and its workers."""

    def __init__(self, world: World, every: int) -> None:
        self.world = world
        self.every = every
        world.lives += 1
        self.epoch_log = EpochLog(world.store)
        self.bring_up()

    def bring_up(self) -> None:
        """Workers go on from their newest checkpoint, and are given all epochs since."""
        self.epoch, self.total = self.world.checkpoints[-1]
        self.epoch_log.restored(self.epoch)
        self.kept = self.epoch

    def run(self) -> None:
        """Be the query: an epoch that it has not noted as done comes again."""
        for epoch in range(self.world.done, len(ROWS)):
            process_epoch(self.epoch_log, epoch, self)
            self.world.noted.append(epoch)
            if epoch + 1 - self.kept >= self.every:
                self.checkpoint()
            self.world.fuse.burn()
            self.world.done = epoch + 1

    def checkpoint(self) -> None:
        self.feed(self.epoch_log.delivered)  # workers may have nothing to do with an epoch that was committed in another life
        self.kept = self.epoch
        self.world.fuse.burn()
        self.world.checkpoints = [*self.world.checkpoints[-1:], (self.epoch, self.total)]
        self.world.fuse.burn()
        for epoch in self.epoch_log.cover(self.epoch):
            for file in self.epoch_log.inputs(epoch):
                self.world.files.pop(file.name, None)
            self.world.fuse.burn()
            self.epoch_log.forget(epoch)

    def feed(self, epoch: int) -> None:
        while self.epoch <= epoch:
            self.total += sum(self.world.files[file.name] for file in files_of(self.world.store, self.epoch))
            self.epoch += 1

    def ingest(self, epoch: int) -> Sequence[File]:
        name = f"in {epoch} {self.world.lives}"
        self.world.files[name] = ROWS[epoch]
        self.world.fuse.burn()
        return [File(name, 1)]

    def compute(self, epoch: int) -> Outputs:
        self.feed(epoch)
        name = f"out {epoch} {self.world.lives}"
        self.world.files[name] = self.total
        self.world.fuse.burn()
        return {"sum": [File(name, 1)]}

    def deliver(self, epoch: int, outputs: Outputs) -> None:
        self.world.fuse.burn()
        (file,) = outputs["sum"]
        self.world.seen.append((epoch, self.world.files[file.name]))
        self.world.fuse.burn()


@given(st.lists(st.integers(0, 60), max_size=12), st.integers(1, 4), st.booleans())
def test_every_epoch_is_handed_over_once_in_order_whenever_the_driver_dies(deaths: list[int], every: int, damage: bool) -> None:
    fuse = Fuse(list(deaths))
    world = World(MortalLogFiles(fuse), fuse)
    finished, most = False, len(deaths) + 2
    while not finished:
        assert world.lives < most
        try:
            Process(world, every).run()
            finished = True
        except Death:
            if damage and len(world.checkpoints) > 1 and world.lives % 3 == 0:
                del world.checkpoints[-1]  # the newest turns out damaged; the one before it has to do
    sums = [sum(ROWS[: epoch + 1]) for epoch in range(len(ROWS))]
    assert sorted(set(world.seen)) == list(enumerate(sums))  # none is missing, and none was ever handed over with other rows
    order = [epoch for epoch, _ in world.seen]
    assert order == sorted(order)
    assert len(world.seen) - len(ROWS) <= len(deaths) - len(fuse.lengths)  # each further time cost a life


@given(st.integers(1, 3))
def test_without_a_death_each_is_handed_over_once_in_bounded_space(every: int) -> None:
    fuse = Fuse([])
    world = World(MortalLogFiles(fuse), fuse)
    Process(world, every).run()
    assert [epoch for epoch, _ in world.seen] == list(range(len(ROWS)))
    assert len([name for name in world.store.files if name.startswith("taken")]) <= 2 * every


def test_a_death_between_handing_over_and_noting_it_is_the_only_one_that_hands_over_again() -> None:
    steps = 0
    while True:
        fuse = Fuse([steps])
        world = World(MortalLogFiles(fuse), fuse)
        try:
            Process(world, 2).run()
            break  # the fuse was longer than the run
        except Death:
            handed, noted = [epoch for epoch, _ in world.seen], EpochLog(world.store).delivered
        Process(world, 2).run()
        again = len(world.seen) - len(ROWS)
        assert again == (1 if handed and handed[-1] > noted else 0)
        steps += 1
    assert steps > 50


@attrs.define
class Refusing:
    """Steps of a dataflow that cannot take the rows of the source until they are repaired."""

    source: str
    seen: list[str] = attrs.field(factory=list)

    def ingest(self, epoch: int) -> Sequence[File]:
        return [File(self.source, 1)]

    def compute(self, epoch: int) -> Outputs:
        (file,) = self.taken.inputs(epoch)
        if file.name == "bad":
            raise OperatorError("no")
        return {"sum": [File(f"sum of {file.name}", 1)]}

    def deliver(self, epoch: int, outputs: Outputs) -> None:
        self.seen += [file.name for file in outputs["sum"]]

    taken: EpochLog = attrs.field(kw_only=True)


@pytest.mark.parametrize("step", range(6))
def test_an_epoch_whose_rows_the_dataflow_cannot_take_comes_from_the_source_again(step: int) -> None:
    fuse = Fuse([step])
    store = MortalLogFiles(fuse)
    for source in ("bad", "bad", "bad", "good"):  # with a death at any of the writes, and then without
        try:
            log = EpochLog(store)
            steps = Refusing(source, taken=log)
            process_epoch(log, 0, steps)
        except (Death, OperatorError):
            assert source == "bad"
    assert steps.seen == ["sum of good"]
    assert EpochLog(store).delivered == 0


def test_only_an_ingested_epoch_is_withdrawn_and_only_by_its_owner() -> None:
    for stage in (Stage.NEW, Stage.COMMITTED, Stage.DELIVERED):
        _, epoch_log = epoch_log_at(stage)
        with pytest.raises(CheckpointError, match=f"epoch 0 cannot be withdrawn: it is {stage.value}"):
            epoch_log.withdraw(0)
    store, before = epoch_log_at(Stage.INGESTED)
    after = EpochLog(store)
    with pytest.raises(CheckpointError, match="taken-0 cannot be written: this stream was started again elsewhere"):
        before.withdraw(0)
    after.withdraw(0)
    assert EpochLog(store).stage(0) is Stage.NEW


# -- what it refuses ---------------------------------------------------------------------------------------------------


def epoch_log_at(stage: Stage) -> tuple[MemoryStore, EpochLog]:
    """An epoch log whose epoch 0 has got so far."""
    store = MemoryStore()
    epoch_log = EpochLog(store)
    for reached in list(Stage)[1 : list(Stage).index(stage) + 1]:
        if reached is Stage.INGESTED:
            epoch_log.ingest(0, [File("a", 1)])
        elif reached is Stage.COMMITTED:
            epoch_log.commit(0, {"x": [File("b", 1)]})
        else:
            epoch_log.deliver(0)
    return store, epoch_log


@pytest.mark.parametrize("stage", Stage)
def test_a_new_process_finds_each_epoch_where_it_was(stage: Stage) -> None:
    store, before = epoch_log_at(stage)
    after = EpochLog(store)
    assert after.stage(0) is before.stage(0) is stage
    assert (after.delivered, after.committed, after.last) == (before.delivered, before.committed, before.last)


@pytest.mark.parametrize("epoch", [0, 2, 7])
def test_an_epoch_that_does_not_follow_the_last_one(epoch: int) -> None:
    _, epoch_log = epoch_log_at(Stage.DELIVERED)
    with pytest.raises(CheckpointError, match="not the one that belongs to this stream"):
        epoch_log.ingest(epoch, [])


def test_an_epoch_is_not_ingested_before_the_last_one_is_delivered() -> None:
    _, epoch_log = epoch_log_at(Stage.COMMITTED)
    with pytest.raises(CheckpointError, match="epoch 1 was to be ingested after epoch 0, of which -1 is delivered"):
        epoch_log.ingest(1, [])


def test_what_workers_need_that_went_back_to_an_older_checkpoint_stays() -> None:
    epoch_log = EpochLog(MemoryStore())
    for epoch in range(6):
        epoch_log.ingest(epoch, [])
        epoch_log.commit(epoch, {})
        epoch_log.deliver(epoch)
    assert (epoch_log.cover(2), epoch_log.cover(4)) == ([], [0, 1])
    epoch_log.restored(2)  # the checkpoint at 4 was damaged
    assert epoch_log.cover(6) == [0, 1]


def test_a_query_that_starts_over() -> None:
    _, epoch_log = epoch_log_at(Stage.DELIVERED)
    epoch_log.ingest(1, [])
    epoch_log.commit(1, {})
    epoch_log.deliver(1)
    assert epoch_log.stage(1) is Stage.DELIVERED
    with pytest.raises(CheckpointError, match="epoch 0 has come again after epoch 1 was delivered.*not the one that belongs"):
        epoch_log.stage(0)


def test_steps_out_of_order() -> None:
    _, epoch_log = epoch_log_at(Stage.INGESTED)
    with pytest.raises(CheckpointError, match="epoch 0 cannot be delivered: it is ingested"):
        epoch_log.deliver(0)
    _, epoch_log = epoch_log_at(Stage.COMMITTED)
    with pytest.raises(CheckpointError, match="epoch 0 cannot be committed: it is committed"):
        epoch_log.commit(0, {})


def test_a_driver_whose_stream_was_started_again_elsewhere_notes_nothing_more() -> None:
    store, before = epoch_log_at(Stage.INGESTED)
    after = EpochLog(store)
    with pytest.raises(CheckpointError, match="committed-0 cannot be written: this stream was started again elsewhere"):
        before.commit(0, {})
    after.commit(0, {"x": []})
    assert EpochLog(store).stage(0) is Stage.COMMITTED


@pytest.mark.parametrize("damage", [b"", b"[]", b"0" * 40, b"\n[1]"])
def test_a_damaged_note(damage: bytes) -> None:
    store, _ = epoch_log_at(Stage.COMMITTED)
    store.files[max(name for name in store.files if name.endswith(".manifest"))] = damage
    with pytest.raises(CheckpointError, match=r"manifest' in the epoch log of this stream is damaged"):
        EpochLog(store)


@pytest.mark.parametrize("boundary", [0, 5])
def test_workers_that_go_on_from_where_the_rows_are_not(boundary: int) -> None:
    store = MemoryStore()
    epoch_log = EpochLog(store)
    for epoch in range(4):
        epoch_log.ingest(epoch, [])
        epoch_log.commit(epoch, {})
        epoch_log.deliver(epoch)
    epoch_log.cover(2)
    for epoch in epoch_log.cover(3):
        epoch_log.forget(epoch)
    with pytest.raises(CheckpointError, match=f"holds all epochs before {boundary}, and .* rows of are 2 to 3"):
        EpochLog(store).restored(boundary)
