"""What lies between declaring state and having it back: nothing is lost, shared or held in silence, and nobody waits in vain."""

from __future__ import annotations

import datetime
import functools
import gc
import io
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest

import timely
from tests.recovery.programs import restless
from tests.recovery.stores import HookedStore, fails_at
from timely.dataflow import Capability, OperatorInfo
from timely.errors import CheckpointError, ConfigurationError, RecoveryError, StalledError, StateError
from timely.recovery import LocalStore, Recovery, open_store


def total(numbers: list[int]) -> Callable[..., Any]:
    """Return the constructor of a sink that adds up what comes, into ``numbers``."""

    def constructor(info: OperatorInfo) -> Callable[..., object]:
        def load(items: Iterable[int]) -> None:
            numbers.extend(items)

        info.register_state(lambda: [(None, sum(numbers))], load)

        def logic(input: Any) -> None:
            for _, batch in input:
                numbers.extend(batch)

        return logic

    return constructor


# -- dataflows and their numbers -----------------------------------------------------------------------------------------


def test_dataflows_that_are_built_one_within_the_other_have_their_own_state_back(tmp_path: Path) -> None:
    def run(start: int) -> tuple[int, int]:
        worker, outside, inside = timely.Worker(), [], []  # type: ignore[var-annotated]
        with Recovery(worker, tmp_path) as recovery:
            with worker.dataflow(int, name="outside") as outer, worker.dataflow(int, name="inside") as inner:
                one, stream = outer.new_input()
                stream.sink(timely.Pipeline, "total", total(outside))
                other, stream = inner.new_input()
                stream.map(lambda x: 10 * x).sink(timely.Pipeline, "total", total(inside))
            for handle in (one, other):
                handle.advance_to(start)
                handle.send(1)
                handle.advance_to(start + 1)
            recovery.checkpoint(start + 1)
            return sum(outside), sum(inside)

    assert [run(0), run(1)] == [(1, 10), (2, 20)]


# -- declarations --------------------------------------------------------------------------------------------------------


def once(where: Path, constructor: Any, workers: int = 1, time: int = 1) -> None:
    """Build a dataflow with one operator of one's own, and take one checkpoint."""

    def program(worker: timely.Worker) -> None:
        with Recovery(worker, where) as recovery:
            with worker.dataflow(int, name="flow") as scope:
                scope.empty().unary(timely.Pipeline, "mine", constructor)
            recovery.checkpoint(time)

    timely.execute(program, workers=workers)


@pytest.mark.parametrize("recovered", [False, True])
def test_a_load_that_refers_to_the_initial_capability_does_not_hold_it_for_good(tmp_path: Path, recovered: bool) -> None:
    held: dict[int, Capability[int]] = {}

    def constructor(capability: Capability[int], info: OperatorInfo) -> Callable[..., object]:
        def load(times: Iterable[int]) -> None:
            held.update((time, capability.delayed(time)) for time in times)

        info.register_state(lambda: [(None, time) for time in (5,)], load)
        return lambda input, output: None

    once(tmp_path, constructor)
    if recovered:
        worker = timely.Worker()
        with Recovery(worker, tmp_path) as recovery:
            with worker.dataflow(int, name="flow") as scope:
                scope.empty().unary(timely.Pipeline, "mine", constructor)
            gc.collect()
            recovery.checkpoint(5)
            assert list(held) == [5]
            held.clear()
            worker.run()


@pytest.mark.parametrize(
    "load",
    [lambda items: None, lambda items: (item for item in items), lambda items: next(items)],
    ids=["none", "as a generator", "one of two"],
)
def test_state_that_is_not_restored_at_once_is_an_error_and_not_lost(tmp_path: Path, load: Callable[[Any], object]) -> None:
    def constructor(capability: Any, info: OperatorInfo) -> Callable[..., object]:
        capability.drop()
        info.register_state(lambda: [(None, 1), (None, 2)], load)
        return lambda input, output: None

    once(tmp_path, constructor)
    with pytest.raises(StateError, match=r"'mine' \(/flow/mine#1\) on worker 0 has a load that returned before it had read all"):
        once(tmp_path, constructor, time=2)


def test_state_that_is_declared_too_late_is_refused(tmp_path: Path) -> None:
    def constructor(capability: Any, info: OperatorInfo) -> Callable[..., object]:
        capability.drop()
        info.declare_stateless()
        return lambda input, output: info.register_state(list, list)

    with pytest.raises(timely.OperatorError, match=r"'mine' .*declares state when its dataflow is built already"):
        once(tmp_path, constructor)


@pytest.mark.parametrize("here", [0, 1])
def test_workers_that_register_different_state_are_refused_before_a_checkpoint(tmp_path: Path, here: int) -> None:
    def constructor(capability: Any, info: OperatorInfo) -> Callable[..., object]:
        capability.drop()
        info.declare_stateless()
        if info.worker == here:
            info.register_state(list, list)
        return lambda input, output: None

    places = f"on worker {here} and not on worker {1 - here}"
    with pytest.raises(StateError, match=rf"part 0 of operator /flow/mine#1 is declared {places}"):
        once(tmp_path, constructor, workers=2)
    assert not list(tmp_path.glob("*.manifest")) + list(tmp_path.glob("*.state"))


def test_a_log_ends_with_the_recovery(tmp_path: Path) -> None:
    worker, logs = timely.Worker(), []

    def constructor(info: OperatorInfo) -> Callable[..., object]:
        logs.append(info.register_state(list, list, logged=True))

        def logic(input: Any) -> None:
            for _, batch in input:
                for record in batch:
                    logs[0].append(0, record)

        return logic

    with Recovery(worker, tmp_path), worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        stream.sink(timely.Pipeline, "log", constructor)
    handle.send_batch([1, 2, 3])
    handle.close()
    worker.run()
    assert logs[0].entries == []


def test_notes_are_each_workers_own(tmp_path: Path) -> None:
    def program(worker: timely.Worker) -> list[Any]:
        with Recovery(worker, tmp_path) as recovery:
            for note in recovery.notes:
                note.append(worker.index)
            worker.all_gather(None)
            recovery.checkpoint((recovery.time or 0) + 1, notes=[])
            return recovery.notes

    assert timely.execute(program, workers=2) == [[], []]
    assert timely.execute(program, workers=2) == [[[0], [0]], [[1], [1]]]


# -- what fails on one worker --------------------------------------------------------------------------------------------


class Unreadable(io.BytesIO):
    """A file that opens, and then cannot be read."""

    def read(self, size: int | None = -1) -> bytes:
        raise OSError(5, "Input/output error")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_file_that_opens_and_cannot_be_read_is_damage(tmp_path: Path, workers: int) -> None:
    def program(worker: timely.Worker, store: LocalStore, upto: int) -> Any:
        with Recovery(worker, store) as recovery:
            collected: list[int] = []
            with worker.dataflow(int) as scope:
                scope.empty().sink(timely.Pipeline, "total", total(collected))
            for time in range((recovery.time or 0) + 1, upto + 1):
                recovery.checkpoint(time)
            return recovery.time

    timely.execute(lambda worker: program(worker, LocalStore(tmp_path), 2), workers=workers)
    newest = sorted(tmp_path.glob("*.manifest"))[-1].stem

    class Damaged(LocalStore):
        def open(self, name: str) -> BinaryIO:
            return Unreadable(b"something") if name.startswith(f"{newest}-0000{workers - 1}") else super().open(name)

    store = Damaged(tmp_path)
    assert timely.execute(lambda worker: program(worker, store, 0), workers=workers) == [1] * workers


@pytest.mark.parametrize(("unwritable", "what"), [(".manifest", "the end of"), ("-00000.state", "writing")])
def test_what_a_store_raises_on_one_worker_ends_the_checkpoint_on_all(tmp_path: Path, unwritable: str, what: str) -> None:
    failures: dict[int, str] = {}
    fault = ValueError("this store has a fault")

    def program(worker: timely.Worker) -> None:
        with Recovery(worker, HookedStore(tmp_path, fails_at("write", unwritable, fault))) as recovery:
            with worker.dataflow() as scope:
                scope.empty().sink(timely.Pipeline, "total", total([]))
            try:
                recovery.checkpoint(1)
            except (RecoveryError, ValueError) as error:
                failures[worker.index] = f"{type(error).__name__}: {error}"
            worker.all_gather("all are here")

    timely.execute(program, workers=2)
    assert failures[0] == "ValueError: this store has a fault"
    assert failures[1] == f"CheckpointError: {what} the checkpoint failed on worker 0: {failures[0]}"


@pytest.mark.parametrize("again", ["by itself", "by the clock"])
def test_a_worker_that_has_left_is_not_waited_for_though_an_operator_never_rests(tmp_path: Path, again: str) -> None:
    def program(worker: timely.Worker) -> None:
        with Recovery(worker, tmp_path) as recovery:
            with worker.dataflow() as scope:
                handle, stream = scope.new_input()
                stream.unary(timely.Pipeline, "restless", restless(again))
            handle.advance_to(1)
            if worker.index == 0:
                recovery.checkpoint(1)

    with pytest.raises(StalledError, match="a value to come from worker 1"):
        timely.execute(program, workers=2)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_operator_that_never_rests_does_not_hide_an_input_that_was_not_advanced(tmp_path: Path, workers: int) -> None:
    def program(worker: timely.Worker) -> None:
        with Recovery(worker, tmp_path) as recovery:
            with worker.dataflow(name="flow") as scope:
                handle, stream = scope.new_input()
                stream.unary(timely.Pipeline, "restless", restless("by itself"))
            assert handle.time == 0
            recovery.checkpoint(1)

    with pytest.raises(CheckpointError, match=r"no checkpoint can be taken at 1: .* a capability of /flow/input#0 at 0"):
        timely.execute(program, workers=workers)


# -- places and logs -----------------------------------------------------------------------------------------------------


def test_a_file_uri_of_another_machine_is_no_path_of_this_one() -> None:
    with pytest.raises(ConfigurationError, match=r"'file://checkpoints/mine'.*file:///"):
        open_store("file://checkpoints/mine")
    assert repr(open_store("file://localhost/mine")) == "LocalStore('/mine')"


def test_a_checkpoint_that_was_written_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def program(worker: timely.Worker) -> Any:
        with Recovery(worker, tmp_path) as recovery:
            return recovery.checkpoint(7)

    with caplog.at_level(logging.INFO, logger="timely.recovery"):
        taken, _ = timely.execute(program, workers=2)
    (record,) = [record for record in caplog.records if record.levelno == logging.INFO]
    assert record.getMessage().startswith(f"checkpoint {taken.name} at 7 was written: {taken.bytes} bytes in ")


# -- keys, times and interruptions ---------------------------------------------------------------------------------------

KEYS: list[Any] = [-5, -1, 0, True, None, 2**70, -(2**70), "x", b"b", (1, "a", None), np.int64(-7), datetime.date(1969, 12, 31)]


def counting(worker: timely.Worker, where: Path, upto: int, time: Any = None) -> list[Any]:
    """Count how often each key has come, once in each epoch, in a state machine, a join, and a window that is never over."""
    step: Callable[[int], Any] = time or (lambda epoch: epoch)
    with Recovery(worker, where) as recovery:
        with worker.dataflow(int if time is None else timely.Product[int, int]) as scope:
            handle, stream = scope.new_input()
            pairs = stream.map(lambda key: (key, 1))
            counted = pairs.state_machine(lambda key, n, total: ((total or 0) + n, [(key, (total or 0) + n)])).capture()
            met = pairs.join(pairs).capture()
            summed = pairs.aggregate(lambda key, n, total: (total or 0) + n, lambda key, total: (key, total)).capture()
        start = (recovery.notes or [0])[0]
        handle.advance_to(step(start))
        for epoch in range(start, upto):
            handle.send_batch([key for number, key in enumerate(KEYS) if number % worker.peers == worker.index])
            handle.advance_to(step(epoch + 1))
        recovery.checkpoint(step(upto), upto)
        collected = [[x for _, batch in seen.messages for x in batch] for seen in (counted, met, summed)]
    return [Counter(map(repr, records)) for records in collected]


@pytest.mark.parametrize("time", [None, lambda epoch: timely.Product(epoch, epoch)], ids=["numbers", "products"])
def test_keys_of_every_kind_find_their_state_on_any_number_of_workers(tmp_path: Path, time: Any) -> None:
    for upto, workers in enumerate([3, 2, 5, 1, 2], start=1):
        run = functools.partial(counting, where=tmp_path, upto=upto, time=time)
        totals: list[Counter[str]] = [sum(parts, Counter()) for parts in zip(*timely.execute(run, workers=workers), strict=True)]
        counted, met, summed = totals
        assert counted == Counter(repr((key, upto)) for key in KEYS)
        assert met == Counter({repr((key, (1, 1))): 2 * upto - 1 for key in KEYS})
        assert summed == Counter(repr((key, 1)) for key in KEYS)


@pytest.mark.parametrize("when", [1, 2, 3, 4])
def test_a_checkpoint_that_is_interrupted_can_be_repeated_and_loses_nothing(tmp_path: Path, when: int) -> None:
    """Somebody presses the keys that interrupt a program when a piece is whole, or when it is written."""

    def run(epochs: Iterable[int], interrupted: int = -1) -> Any:
        worker, store, moments = timely.Worker(), HookedStore(tmp_path), iter(range(1, 5))

        def interrupt(moment: str, name: str) -> None:
            if moment in ("whole", "written") and next(moments) == when:
                raise KeyboardInterrupt

        with Recovery(worker, store) as recovery:
            with worker.dataflow(int) as scope:
                handle, stream = scope.new_input()
                totals = stream.state_machine(lambda key, n, total: ((total or 0) + n, [(total or 0) + n])).capture()
            for epoch in epochs:
                handle.advance_to(epoch)
                handle.send(("key", 1))
                handle.advance_to(epoch + 1)
                if epoch == interrupted:
                    store.hooks.append(interrupt)
                    with pytest.raises(KeyboardInterrupt):
                        recovery.checkpoint(epoch + 1)
                    store.hooks.clear()
                else:
                    recovery.checkpoint(epoch + 1)
        return [x for _, batch in totals.messages for x in batch]

    assert run(range(4), interrupted=2) == [1, 2, 3, 4]
    assert run(range(4, 6)) == [5, 6]


def test_state_outlives_the_end_of_its_stream_however_often_a_run_goes_on(tmp_path: Path) -> None:
    """Each run ends its inputs before its last checkpoint; whether that holds changes or all of the state makes no difference."""

    def run(day: int) -> list[Any]:
        worker = timely.Worker()
        with Recovery(worker, tmp_path) as recovery:
            with worker.dataflow(int) as scope:
                numbers, stream = scope.new_input()
                table, names = scope.new_input()
                totals = stream.state_machine(lambda key, n, total: ((total or 0) + n, [(total or 0) + n])).capture()
                named = stream.join(names).capture()
            if day == 0:
                table.send(("key", "name"))
            table.close()
            numbers.advance_to(day)
            numbers.send(("key", 1))
            numbers.close()
            worker.run()
            recovery.checkpoint(day + 1)
        return [x for seen in (totals, named) for _, batch in seen.messages for x in batch]

    days = 19  # more than the 16 checkpoints between full snapshots
    assert [run(day) for day in range(days)] == [[day + 1, ("key", (1, "name"))] for day in range(days)]
