"""What cannot be kept, or gone on from, is refused before anything runs on it, with an error that says what to do."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import timely
from timely import Product
from timely import differential as dd
from timely.errors import (
    ChangedDataflowError,
    CheckpointError,
    ConfigurationError,
    RecoveryError,
    StateError,
    TimestampError,
)
from timely.recovery import MemoryStore, Recovery

Build = Callable[[timely.ScopeBuilder[int]], object]


def with_state(save: Callable[[], Any], load: Callable[[Any], object] = list, **how: Any) -> Callable[..., Any]:
    """Return the constructor of an operator that keeps something, and does nothing."""

    def constructor(capability: Any, info: timely.OperatorInfo) -> Callable[..., object]:
        capability.drop()
        info.register_state(save, load, **how)
        return lambda input, output: list(input)

    return constructor


def plain(scope: timely.ScopeBuilder[int], name: str = "mine", constructor: Any = None) -> None:
    """A dataflow of an input and one operator."""
    handle, stream = scope.new_input()
    handle.close()
    stream.unary(timely.Pipeline, name, constructor or with_state(lambda: [(None, 1)]))


def once(where: Path, build: Build = plain, workers: int = 1, time: Any = 1, dataflows: int = 1, **how: Any) -> list[Any]:
    """Build the dataflow, and take one checkpoint."""

    def program(worker: timely.Worker) -> None:
        with Recovery(worker, where, **how) as recovery:
            for number in range(dataflows):
                with worker.dataflow(int, name=f"flow{number}") as scope:
                    build(scope)
            recovery.checkpoint(time)

    return timely.execute(program, workers=workers)


def renamed(scope: timely.ScopeBuilder[int]) -> None:
    plain(scope, "yours")


def longer(scope: timely.ScopeBuilder[int]) -> None:
    plain(scope)
    scope.empty()


def stateless(capability: Any, info: timely.OperatorInfo) -> Callable[..., object]:
    capability.drop()
    info.declare_stateless()
    return lambda input, output: None


def with_more_state(capability: Any, info: timely.OperatorInfo) -> Callable[..., object]:
    info.register_state(list, list)
    return with_state(list)(capability, info)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("build", "difference"),
    [
        (renamed, r"it has no operator /flow0/yours#1"),
        (longer, r"it has edge from .*, and now there is operator /flow0/empty#2 with 0 inputs and 1 outputs"),
        (lambda scope: plain(scope, constructor=stateless), r"its operator /flow0/mine#1 had a part 0 of state, which it does"),
        (lambda scope: plain(scope, constructor=with_more_state), r"its operator /flow0/mine#1 had no part 1 of state"),
    ],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_another_graph_is_refused(tmp_path: Path, build: Build, difference: str, workers: int) -> None:
    once(tmp_path, workers=workers)
    with pytest.raises(ChangedDataflowError, match=rf"is of another dataflow: {difference}.*another directory"):
        once(tmp_path, build, workers=workers)
    once(tmp_path, workers=workers, time=2)  # and it can still be gone on from


def test_other_times_are_refused(tmp_path: Path) -> None:
    def program(worker: timely.Worker, times: Any) -> None:
        with Recovery(worker, tmp_path) as recovery:
            with worker.dataflow(times, name="flow") as scope:
                scope.new_input()[0].close()
            recovery.checkpoint(1)

    timely.execute(lambda worker: program(worker, int))
    message = r"with times int, and now there is scope /flow with times Product\[int, int\]"
    with pytest.raises(ChangedDataflowError, match=message):
        timely.execute(lambda worker: program(worker, timely.Product[int, int]))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("time", "why"),
    [
        (None, r"None is no time at which a checkpoint can be taken: give one to which the inputs were advanced"),
        (np.int64(3), r"at np.int64\(3\): np.int64\(3\) is not a time of type int: .* is of type int64, not int; give a time"),
        (3.0, r"3.0 is not a time of type int"),
        ("3", r"'3' is not a time of type int"),
        (-1, r"-1 is not a time of type int: -1 is before the minimum, 0"),
        (timely.Product(3, 0), r"is of type Product, not int"),
    ],
)
def test_a_checkpoint_at_what_is_no_time_of_any_dataflow_is_refused(tmp_path: Path, time: Any, why: str, workers: int) -> None:
    with pytest.raises(CheckpointError, match=why):
        once(tmp_path, time=time, workers=workers)
    assert not [*tmp_path.glob("*.manifest"), *tmp_path.glob("*.state")]


def test_a_time_need_only_be_one_of_some_dataflow(tmp_path: Path) -> None:
    def program(worker: timely.Worker, *times: Any) -> None:
        with Recovery(worker, tmp_path) as recovery:
            for spec in (int, timely.Product[int, int]):
                with worker.dataflow(spec) as scope:
                    scope.new_input()[0].close()
            for time in times:
                recovery.checkpoint(time)

    timely.execute(lambda worker: program(worker, 1, 2))
    with pytest.raises(CheckpointError, match=r"is not at or after 2, the time of the checkpoint before"):
        timely.execute(lambda worker: program(worker, timely.Product(3, 0)))
    with pytest.raises(CheckpointError, match=r"'3' is not a time of type int: .*; '3' is not .* Product\[int, int\]: "):
        timely.execute(lambda worker: program(worker, "3"))


def test_dataflows_that_are_not_built_again_are_missed_before_their_state_is_lost(tmp_path: Path) -> None:
    once(tmp_path, dataflows=2)
    with pytest.raises(ChangedDataflowError, match=r"has 2 dataflows, and only 1 .* \(scope /flow1 with times int was not\)"):
        once(tmp_path)
    once(tmp_path, dataflows=3)


def test_another_version_is_refused(tmp_path: Path) -> None:
    once(tmp_path, version="one")
    with pytest.raises(ChangedDataflowError, match=r"has version 'one', and this program has 'two': .*another directory"):
        once(tmp_path, version="two", workers=2)
    once(tmp_path, version="one")


def seal(path: Path, body: bytes, form: int = 5) -> None:
    """Write a manifest or a fence of a format."""
    start = f"timely {'fence' if path.suffix == '.fence' else 'checkpoint'} {form} ".encode()
    digest = hashlib.blake2b(start + body, digest_size=16).hexdigest()
    path.write_bytes(start + digest.encode() + b"\n" + body)


@pytest.mark.parametrize("version", [(1, 2), b"x", 1, 0])
def test_a_version_that_is_no_string_is_refused(tmp_path: Path, version: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"version=.*: give a string, or nothing"):
        once(tmp_path, version=version)
    assert not list(tmp_path.iterdir())


def test_no_version_is_an_empty_one(tmp_path: Path) -> None:
    once(tmp_path, version=None)
    once(tmp_path, version="")
    once(tmp_path, version=None)


@pytest.mark.parametrize("kind", ["manifest", "fence"])
def test_another_format_is_refused_though_an_older_checkpoint_could_be_read(tmp_path: Path, kind: str) -> None:
    once(tmp_path)
    once(tmp_path)
    newest = sorted(tmp_path.glob(f"*.{kind}"))[-1]
    seal(newest, newest.read_bytes().split(b"\n", 1)[1], form=7)
    with pytest.raises(ChangedDataflowError, match=rf"{newest.name} at .*: it has format 7, and this version .* reads format 5"):
        once(tmp_path)


def test_times_that_the_program_does_not_know_any_more_are_refused(tmp_path: Path) -> None:
    once(tmp_path)
    path = next(tmp_path.glob("*.manifest"))
    content = json.loads(path.read_bytes().split(b"\n", 1)[1])
    content["time"] = "Y25vX3N1Y2hfbW9kdWxlCm5vX25hbWUKLg=="  # a pickle of no_such_module.no_name
    body = json.dumps(content).encode()
    seal(path, body)
    with pytest.raises(ChangedDataflowError, match=rf"{path.name} at .*: its time 1 or its notes cannot .*no_such_module"):
        once(tmp_path)


def test_operators_that_have_not_declared_their_state_are_named_all_at_once(tmp_path: Path) -> None:
    def silent(capability: Any, info: timely.OperatorInfo) -> Callable[..., object]:
        return lambda input, output: None

    def build(scope: timely.ScopeBuilder[int]) -> None:
        stream = scope.empty().unary(timely.Pipeline, "first", silent)
        with scope.iterative() as loop:
            stream.enter(loop).unary(timely.Pipeline, "second", silent).leave()

    names = r"'first' \(/flow0/first#1\), 'second' \(/flow0/iterative#2/second#\d\)"
    with pytest.raises(StateError, match=rf"these operators have: {names}\. .*info\.declare_stateless\(\)"):
        once(tmp_path, build)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("bad", [lambda: [(None, lambda: 1)], lambda: [(1, 2), (1, open)], lambda: [(None, (i for i in [1]))]])
def test_state_that_cannot_be_pickled_names_its_operator(tmp_path: Path, workers: int, bad: Callable[[], Any]) -> None:
    broken = iter(bad())
    pieces = list(broken)
    if pieces[-1][1] is open:
        pieces[-1] = (1, (tmp_path / "x").open("w"))
    with pytest.raises(StateError, match=r"operator 'mine' \(/flow0/mine#1\) on worker 0 has state that cannot be pickled"):
        once(tmp_path, lambda scope: plain(scope, constructor=with_state(lambda: pieces)), workers=workers)
    if hasattr(pieces[-1][1], "close"):
        pieces[-1][1].close()


def test_an_error_while_state_is_saved_or_restored_names_its_operator(tmp_path: Path) -> None:
    def raising(*_: Any) -> Any:
        raise KeyError("lost")

    with pytest.raises(StateError, match=r"operator 'mine' .* raised KeyError while its state was saved: 'lost'"):
        once(tmp_path, lambda scope: plain(scope, constructor=with_state(raising)))
    once(tmp_path)
    with pytest.raises(StateError, match=r"operator 'mine' .* raised KeyError while it restored its state: 'lost'"):
        once(tmp_path, lambda scope: plain(scope, constructor=with_state(list, raising)))


def test_state_of_a_worker_without_rescale_needs_as_many_workers(tmp_path: Path) -> None:
    once(tmp_path, workers=2)
    message = r"belongs to a worker and not to a key, and was saved on 2 workers: it cannot go on with 3\. Run 2 workers, or"
    with pytest.raises(StateError, match=message):
        once(tmp_path, workers=3)
    once(tmp_path, workers=2)


def test_a_worker_without_such_state_needs_no_rescale(tmp_path: Path) -> None:
    def build(scope: timely.ScopeBuilder[int]) -> None:
        plain(scope, constructor=with_state(list))

    once(tmp_path, build, workers=2)
    once(tmp_path, build, workers=3)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_boundary_that_can_never_be_reached_is_an_error_that_names_what_holds_it(tmp_path: Path, workers: int) -> None:
    def program(worker: timely.Worker) -> None:
        with Recovery(worker, tmp_path) as recovery:
            with worker.dataflow(name="flow") as scope:
                handle, _ = scope.new_input()
            handle.advance_to(3 if worker.index else 2)
            recovery.checkpoint(3)

    message = r"no checkpoint can be taken at 3: .* worker 0 sees a capability of /flow/input#0 at 2\. Every worker advances"
    with pytest.raises(CheckpointError, match=message):
        timely.execute(program, workers=workers)


def test_after_that_a_worker_may_advance_and_try_again(tmp_path: Path) -> None:
    worker = timely.Worker()
    recovery = Recovery(worker, tmp_path)
    with worker.dataflow(name="flow") as scope:
        handle, _ = scope.new_input()
    with pytest.raises(CheckpointError, match="no checkpoint can be taken at 3"):
        recovery.checkpoint(3)
    handle.advance_to(3)
    assert recovery.checkpoint(3).time == 3


def test_workers_that_want_different_times_are_refused(tmp_path: Path) -> None:
    def program(worker: timely.Worker) -> None:
        with Recovery(worker, tmp_path) as recovery:
            recovery.checkpoint(worker.index)

    with pytest.raises(CheckpointError, match=r"different times, \[0, 1\]"):
        timely.execute(program, workers=2)


def test_time_does_not_go_back(tmp_path: Path) -> None:
    once(tmp_path, time=5)
    with pytest.raises(CheckpointError, match="4 is not at or after 5"):
        once(tmp_path, time=4)


def test_a_recovery_that_is_made_after_the_dataflows_takes_no_checkpoint(tmp_path: Path) -> None:
    worker = timely.Worker()
    with worker.dataflow() as scope:
        plain(scope)
    with (
        Recovery(worker, tmp_path) as recovery,
        pytest.raises(CheckpointError, match="has no dataflow to checkpoint: .* make the Recovery before the dataflows"),
    ):
        recovery.checkpoint(1)


def test_a_recovery_that_is_closed_takes_no_checkpoints(tmp_path: Path) -> None:
    with Recovery(timely.Worker(), tmp_path) as recovery:
        pass
    with pytest.raises(CheckpointError, match="this Recovery is closed"):
        recovery.checkpoint(1)


def test_one_recovery_at_a_time(tmp_path: Path) -> None:
    worker = timely.Worker()
    with Recovery(worker, tmp_path), pytest.raises(ConfigurationError, match="has a Recovery already"):
        Recovery(worker, tmp_path)
    Recovery(worker, tmp_path).close()


@pytest.mark.parametrize("keep", [0, -1, "two"])
def test_at_least_one_checkpoint_stays(tmp_path: Path, keep: Any) -> None:
    with pytest.raises(ConfigurationError, match="keep="):
        Recovery(timely.Worker(), tmp_path, keep=keep)


def test_a_place_that_cannot_be_written_to_is_a_checkpoint_error_on_every_worker(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    failures = []

    def program(worker: timely.Worker) -> None:
        try:
            Recovery(worker, tmp_path / "file" / "checkpoints")
        except RecoveryError as error:
            failures.append(type(error))

    timely.execute(program, workers=2)
    assert failures == [CheckpointError, CheckpointError]


def test_notes_that_cannot_be_pickled_are_a_state_error(tmp_path: Path) -> None:
    worker = timely.Worker()
    message = "the checkpoint has notes that cannot be pickled"
    with Recovery(worker, tmp_path) as recovery, pytest.raises(StateError, match=message):
        recovery.checkpoint(1, notes=[lambda: 1])


def test_nor_is_it_sent_by_an_unordered_input_or_by_a_handle_of_another_dataflow(tmp_path: Path) -> None:
    def run(first: int, refused: bool) -> list[tuple[int, list[Any]]]:
        worker = timely.Worker()
        with worker.dataflow(int, name="not kept") as scope:
            handle, _ = scope.new_input()
        with Recovery(worker, tmp_path) as recovery:
            with worker.dataflow(int, name="kept") as scope:
                (unordered, capability), some = scope.new_unordered_input()
                seen = scope.input_from(handle).concat(some).capture()
            if refused:
                with pytest.raises(
                    TimestampError, match=r"is at 0, and the run goes on from a checkpoint at 2,.* advance_to\(2\)"
                ):
                    handle.send("twice")
                with pytest.raises(TimestampError, match=r"unordered_input.* is at 1, and .* at 2,.* downgrade\(2\)"):
                    unordered.session(capability.delayed(1))
            unordered.session(capability.delayed(first + 1)).give("ahead")
            handle.advance_to(first)
            handle.send("here")
            handle.advance_to(first + 2)
            capability.downgrade(first + 2)
            recovery.checkpoint(first + 2)
        return seen.extract()

    assert run(0, False) == [(0, ["here"]), (1, ["ahead"])]
    assert run(2, True) == [(2, ["here"]), (3, ["ahead"])]


@pytest.mark.parametrize("kind", ["input", "unordered"])
def test_nor_into_a_scope_inside(tmp_path: Path, kind: str) -> None:
    """Where times have a round: it is the time around that must not be before the one that is gone on from."""

    def run(first: int, refused: bool) -> list[tuple[int, list[Any]]]:
        worker = timely.Worker()
        with Recovery(worker, tmp_path) as recovery:
            with (
                worker.dataflow(int) as scope,
                scope.region() as region,
                region.iterative() as loop,
                loop.iterative() as inner,
            ):
                if kind == "input":
                    handle, stream = inner.new_input()
                else:
                    (unordered, capability), stream = inner.new_unordered_input()
                seen = stream.leave().leave().leave().capture()

            def send(time: int, record: str) -> None:
                moment = Product(Product(time, 0), 3)
                if kind == "input":
                    handle.advance_to(moment)
                    handle.send(record)
                else:
                    unordered.session(capability.delayed(moment)).give(record)

            if refused:
                remedy = r"at 2, which has all .*: \w+\(\(\(2, 0\), 0\)\) first"
                with pytest.raises(TimestampError, match=rf"is at \(\(1, 0\), 3\), and .* {remedy}"):
                    send(1, "twice")
            send(first, "here")
            last = Product(Product(first + 2, 0), 3)
            handle.advance_to(last) if kind == "input" else capability.downgrade(last)
            recovery.checkpoint(first + 2)
        return seen.extract()

    assert run(0, False) == [(0, ["here"])]
    assert run(2, True) == [(2, ["here"])]


def test_dataflows_are_known_by_their_names() -> None:
    store = MemoryStore()

    def sums(*names: str, day: int) -> dict[str, list[int]]:
        worker, inputs, seen = timely.Worker(), {}, {}
        with timely.Recovery(worker, store) as recovery:
            for name in names:
                with worker.dataflow(int, name=name) as scope:
                    inputs[name], stream = scope.new_input()
                    seen[name] = stream.state_machine(lambda key, n, total: ((total or 0) + n, [(total or 0) + n])).capture()
            for name, handle in inputs.items():
                handle.advance_to(recovery.time or 0)
                handle.send(("all", len(name)))
                handle.advance_to(day)
            recovery.checkpoint(day)
        return {name: each.extract()[0][1] for name, each in seen.items()}

    assert sums("a", "bbb", day=1) == {"a": [1], "bbb": [3]}
    assert sums("bbb", "a", "cc", day=2) == {"bbb": [6], "a": [2], "cc": [2]}
    assert sums("cc", "bbb", "a", day=3) == {"cc": [4], "bbb": [9], "a": [3]}
    for names in (("dd", "a", "bbb", "cc"), ("a", "bbb", "dd"), ("a", "a", "bbb")):
        with pytest.raises(ChangedDataflowError, match=r"is of another dataflow: it has \[.*'cc'\], and now there is '(dd|a)'"):
            sums(*names, day=4)
    with pytest.raises(ChangedDataflowError, match="only 2 of them were built again"):
        sums("a", "bbb", day=4)


def test_a_table_of_data_that_was_edited_is_refused() -> None:
    store = MemoryStore()

    def rows(*numbers: int, workers: int = 1) -> list[Any]:
        def program(worker: timely.Worker) -> Any:
            with timely.Recovery(worker, store) as recovery:
                with worker.dataflow(int) as scope:
                    handle, _ = scope.new_input()
                    output = dd.table(scope, pa.table({"n": numbers})).output()
                time = (recovery.time or 0) + 1
                handle.advance_to(time)
                recovery.checkpoint(time)
                return sorted(output.at(time - 1))

        return [row for part in timely.execute(program, workers=workers) for row in part]

    assert rows(1, 2) == rows(1, 2) == sorted(rows(1, 2, workers=2)) == [(1,), (2,)]
    for workers in (1, 2, 3):
        with pytest.raises(
            ChangedDataflowError, match="it has table of n int64, data .*, and now there is table of n int64, data"
        ):
            rows(1, 3, workers=workers)
    assert rows(1, 2) == [(1,), (2,)]
