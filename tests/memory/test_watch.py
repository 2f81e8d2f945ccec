"""One memory budget for all that workers hold: who holds most is named, with the time; what fits changes no result.

White box: no public function returns how much memory the process has, or forgets what the system had left.
"""

from __future__ import annotations

import itertools
import math
import re
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timely
from timely import differential as dd
from timely.errors import ErrorSubject
from timely.memory import Account, Footprint, MemoryBudget, MemoryWatch, control_group_left, system_memory_left
from timely.memory.watch import _Process
from timely.monitor.memory import resident_memory

SMALL = "20MB"
"""Less than the interpreter takes, so that what workers hold is measured from the beginning."""


def large(first: int, many: int = 100) -> list[str]:
    """Return records of 10 KB that differ."""
    return [f"{number:010000d}" for number in range(first, first + many)]


def stash() -> Callable[..., None]:
    """Return logic that holds what comes until its time is complete, and sends the number of records."""
    held: dict[int, list[Any]] = {}

    def logic(input: Any, output: Any, notificator: Any) -> None:
        for capability, batch in input:
            if capability.time not in held:
                held[capability.time] = []
                notificator.notify_at(capability.retain())
            held[capability.time].append(batch)
        for capability, _ in notificator:
            output.session(capability).give(sum(map(len, held.pop(capability.time))))

    return logic


def sends(times: int, batches: int, build: Callable[[Any], object] | None = None) -> Callable[[timely.Worker], Any]:
    """Return a program that sends batches at a time before all others, and then nothing at the next ones."""

    def program(worker: timely.Worker) -> Any:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            if build is None:
                captured = stream.exchange(hash).unary_notify(timely.Pipeline, "stash", [], stash()).capture()
            else:
                build(stream)
        for time in range(times):
            handle.advance_to(time)
            for number in range(batches):
                handle.send_batch(large(100 * (number + batches * (time + times * worker.index))))
                worker.step()
        handle.close()
        worker.run()
        return sum(count for _, counts in captured.messages for count in counts) if build is None else None

    return program


@pytest.mark.parametrize(("workers", "processes"), [(1, 1), (2, 1), (1, 2)])
def test_a_time_that_never_completes_is_named_with_its_operator(workers: int, processes: int) -> None:
    with pytest.raises(timely.OutOfMemoryError) as caught:
        timely.execute(sends(1, 1000), workers=workers, processes=processes, memory=SMALL)
    text = str(caught.value)
    assert "more than memory=20 MB. Most of it is held by operator 'stash' (/dataflow0/stash#2) on worker" in text
    assert " records at time 0; 'stash' was built at test_watch.py:" in text
    assert "advance or close the inputs" in text
    assert "memory=" in text.split("closed", 1)[-1]
    assert (caught.value.name, caught.value.path) == ("stash", "/dataflow0/stash#2")
    assert caught.value.worker in range(workers * processes)


def test_of_several_times_the_one_that_holds_most_is_named() -> None:
    def build(stream: Any) -> None:
        stream.delay_batch(lambda time: 1000 + min(time, 1)).probe()

    with pytest.raises(timely.OutOfMemoryError, match=r"held by operator 'delay_batch' .*, of it .* records at time 1001; "):
        timely.execute(sends(1000, 2, build), memory=SMALL)


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("operator 'accumulate'", lambda stream: stream.accumulate([], lambda all, record: [*all, record])),
        ("operator 'distinct'", lambda stream: stream.distinct()),
        ("operator 'capture'", lambda stream: stream.capture()),
        ("input 0 of operator 'never'", lambda stream: stream.unary(timely.Pipeline, "never", lambda *_: lambda *_: None)),
    ],
)
def test_what_ready_made_operators_and_inputs_hold_counts(name: str, build: Callable[[Any], object]) -> None:
    with pytest.raises(timely.OutOfMemoryError, match=rf"held by {name}.* time "):
        timely.execute(sends(1, 1000, build), memory=SMALL)


def test_arrangements_count_where_nothing_goes_to_disk() -> None:
    with MemoryBudget(total=SMALL), timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            rows, collection = dd.new_collection(scope)
            collection.arrange_by_key(name="by number")
        with pytest.raises(timely.OutOfMemoryError, match=r"held by operator 'by number' .* while it waits for time \d+"):
            for time in range(200):
                for number, text in enumerate(large(100 * time)):
                    rows.insert((number, text))
                rows.advance_to(time + 1)
                worker.step()


def test_a_budget_that_is_large_enough_changes_no_result() -> None:
    program = sends(3, 5)
    for memory in ("400MB", "1TB", MemoryBudget(total=math.inf)):
        assert sum(timely.execute(program, workers=2, memory=memory)) == 2 * 3 * 5 * 100


def test_what_is_held_for_a_while_only_is_no_error() -> None:
    assert timely.execute(sends(80, 1), memory="40MB") == [8000]  # 80 MB in all, 1 MB at a time


@pytest.mark.parametrize("processes", [1, 2])
def test_loops_end_under_a_budget(processes: int) -> None:
    def program(worker: timely.Worker) -> int:
        with worker.dataflow(int) as scope:
            handle, again = scope.feedback()
            numbers = scope.to_stream(iter(range(worker.index, 2000, worker.peers))).map(lambda number: (number, 5))
            moved = numbers.concat(again).exchange(sum).map(lambda pair: (pair[0], pair[1] - 1))
            moved.filter(lambda pair: pair[1] > 0).connect_loop(handle)
            captured = moved.filter(lambda pair: pair[1] == 0).count().capture()
        worker.run()
        return sum(count for _, batch in captured.messages for count in batch)

    memory = MemoryBudget(None, in_flight="64KB", total=SMALL)
    assert sum(timely.execute(program, workers=2 // processes, processes=processes, memory=memory)) == 2000


def test_what_the_parent_of_a_process_holds_is_not_held_in_it() -> None:
    account = Account("operator 'stash'", ErrorSubject("operator", "stash", "/stash#1", ""), 0, 3e9, 1e6, {})
    of_parent = MemoryWatch(MemoryBudget(total=SMALL), lambda: [account])
    assert sum(timely.execute(sends(2, 2), processes=2, memory=SMALL)) == 2 * 2 * 2 * 100
    assert of_parent.raised is None


def test_a_run_ends_before_the_system_has_nothing_left(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []

    def left() -> int:
        begun.append(resident_memory())
        return (64 << 20) + begun[0] - begun[-1]

    monkeypatch.setattr(_Process, "_current", None)  # which may have looked a moment ago
    monkeypatch.setattr("timely.memory.watch.system_memory_left", left)
    with pytest.raises(timely.OutOfMemoryError) as caught:
        timely.execute(sends(1, 1000), processes=2, memory=MemoryBudget())
    text = str(caught.value)
    assert re.search(r"this process has \d+(\.\d)? [MG]B, and the system has \d+(\.\d)? [KM]B left for it\. ", text)
    assert "Most of it is held by operator 'stash' (/dataflow0/stash#2) on worker" in text


def test_a_process_that_does_not_grow_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    lefts = itertools.chain([1 << 30], itertools.repeat(0))
    monkeypatch.setattr(_Process, "_current", None)  # which may have looked a moment ago
    monkeypatch.setattr("timely.memory.watch.system_memory_left", lambda: next(lefts))
    monkeypatch.setattr("timely.memory.watch.resident", lambda: 100 << 20)
    assert sum(timely.execute(sends(2, 2), processes=2, memory=MemoryBudget())) == 2 * 2 * 2 * 100


def test_memory_is_not_checked_where_the_environment_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELY_MEMORY", "none")
    assert MemoryBudget.of_process().total == math.inf
    monkeypatch.setenv("TIMELY_MEMORY", SMALL)
    assert MemoryBudget.of_process().total == 20 << 20
    with pytest.raises(timely.ConfigurationError, match="total='much': give bytes above 0"):
        MemoryBudget(total="much")


@pytest.mark.parametrize("version", [1, 2])
def test_page_cache_is_left(tmp_path: Path, version: int) -> None:
    folder = tmp_path / "memory" if version == 1 else tmp_path
    folder.mkdir(exist_ok=True)
    prefix, limit, usage = ("total_", "limit_in_bytes", "usage_in_bytes") if version == 1 else ("", "max", "current")
    (folder / f"memory.{limit}").write_text("2000\n")
    (folder / f"memory.{usage}").write_text("1900\n")
    (folder / "memory.stat").write_text(f"{prefix}inactive_file 100\n{prefix}active_file 300\n")
    groups = tmp_path / "groups"
    groups.write_text("5:memory:/\n" if version == 1 else "0::/\n")
    assert control_group_left(str(tmp_path), str(groups)) == 200
    assert control_group_left(str(tmp_path), str(groups), ("inactive_file", "active_file")) == 500
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9 kB\nMemAvailable: 3 kB\nSwapFree: 2 kB\n")
    left = system_memory_left(str(meminfo))
    assert left is not None
    assert left <= 5 << 10


class Row:
    """A record that is an object."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.text = f"{number:0100d}"


def many_batches() -> Iterator[list[tuple[int, str]]]:
    for batch in range(300):
        yield [(number, f"{number:050d}") for number in range(1000 * batch, 1000 * batch + 100)]


def enclosed(held: Any, depth: int) -> Any:
    for _ in range(depth):
        held = (lambda inner: lambda: inner)(held)
    return held


@pytest.mark.parametrize(
    "make",
    [
        lambda: large(0, 500),
        lambda: enclosed(large(0, 500), 8),
        lambda: [Row(number) for number in range(10_000)],
        lambda: list(many_batches()),
        lambda: [[np.zeros(100) + number for number in range(20)] for _ in range(500)],
        lambda: ["the same" * 1000] * 100_000,
    ],
)
def test_sizes_are_about_right(make: Callable[[], Any]) -> None:
    tracemalloc.start()
    held = make()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    footprint = Footprint()
    footprint.add(held)
    assert 0.7 * size < footprint.size < 1.3 * size


def test_objects_are_counted_once_also_in_circles() -> None:
    one: list[Any] = [bytes(10_000)]
    one.append({"back": one, "logic": lambda: one})
    footprint = Footprint()
    footprint.add(one)
    footprint.add([one])
    assert 10_000 < footprint.size < 12_000
    assert footprint.next().size == 0


def test_what_refuses_to_be_looked_at_is_left_out() -> None:
    class Stubborn:
        @property
        def nbytes(self) -> int:
            raise RuntimeError("no")

        def __len__(self) -> int:
            raise RuntimeError("no")

        def __sizeof__(self) -> int:
            raise RuntimeError("no")

        def __eq__(self, other: object) -> bool:
            raise RuntimeError("no")

        __hash__ = object.__hash__

    footprint = Footprint()
    footprint.add({Stubborn(): [Stubborn()], "rows": bytes(5000)}, times=[1, 2])
    assert 5000 < footprint.size < 8000
