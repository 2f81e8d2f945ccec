"""What waits on disk: the same messages in the same order, in every kind of dataflow, and errors that say what to do.

White box: a queue is a deque whatever is on disk, so files, sizes and the limit are looked at here.
"""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from timely import ConfigurationError, GraphError, OperatorError, SpillError
from timely.dataflow.spill import SpillQueue, size_of
from timely.memory import paged_file
from timely.progress import ProductSummary, Step
from timely.testing import simulate


def arrow(number: int) -> Any:
    return pa.record_batch({"k": pa.array(range(number % 7 + 1)), "text": pa.array(["é" * number] * (number % 7 + 1))})


MAKES: list[Callable[[int], Any]] = [
    lambda number: [number, "x" * number, (number, None)],
    lambda number: np.arange(number + 1) * 3,
    arrow,
    lambda number: arrow(number).slice(number % 3),
    lambda number: np.array([(number,), "text", None], dtype=object),
    lambda number: [arrow(number), np.arange(number)],
]


def plain(value: Any) -> Any:
    """A container as plain values that can be compared."""
    if isinstance(value, pa.RecordBatch):
        return value.schema, value.to_pylist()
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.tolist()
    return [plain(item) for item in value] if isinstance(value, list) else value


OPERATIONS = st.lists(st.one_of(st.tuples(st.integers(0, 5), st.integers(0, 200)), st.just("pop"), st.just("clear")), max_size=60)


@given(OPERATIONS, st.integers(0, 500), st.integers(0, 500))
def test_it_is_a_deque_whatever_is_done_with_it(operations: list[Any], one: int, other: int) -> None:
    total, reserve = max(one, other), min(one, other)
    queue: SpillQueue[int] = SpillQueue(total, reserve, "an input")
    model: deque[tuple[int, Any, int]] = deque()
    for step, operation in enumerate(operations):
        if operation == "clear" and step % 3 == 0:
            queue.clear()
            model.clear()
        elif operation in ("pop", "clear"):
            if model:
                expected, result = model.popleft(), queue.popleft()
                assert (result[0], plain(result[1]), result[2]) == (expected[0], plain(expected[1]), expected[2])
            else:
                with pytest.raises(IndexError):
                    queue.popleft()
        else:
            make, number = operation
            message = (step, MAKES[make](number), step + 1)
            model.append(message)
            queue.append(message)
            assert queue.resident <= max(total, reserve + size_of(message[1]))
        assert len(queue) == len(model)
        assert bool(queue) is bool(model)
    assert [(t, plain(b), n) for t, b, n in queue] == [(t, plain(b), n) for t, b, n in model]
    queue.clear()
    assert (len(queue), queue.paged, queue.resident) == (0, 0, 0)


# -- files -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The temporary files that are made, which must be closed when the test is over."""
    made: list[Any] = []
    make = tempfile.TemporaryFile

    def watched(*args: Any, **options: Any) -> Any:
        made.append(make(*args, **options))
        return made[-1]

    monkeypatch.setattr(tempfile, "TemporaryFile", watched)
    yield made
    assert all(file.closed for file in made)


def test_a_file_goes_when_all_in_it_was_read(files: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paged_file, "SEGMENT", 3000)
    queue: SpillQueue[int] = SpillQueue(0, 0, "an input")
    for number in range(101):
        queue.append((number, np.full(1000, number, np.uint8), 1000))
    assert queue.paged == 100
    assert 30 <= len(files) <= 50
    assert not any(file.closed for file in files)
    for number in range(101):
        open_files = sum(not file.closed for file in files)
        assert open_files <= (100 - number) // 2 + 2
        assert queue.popleft()[1].tolist() == [number] * 1000
    assert all(file.closed for file in files)


class Full:
    """A file on a disk with room for so many bytes."""

    def __init__(self, file: Any, room: int) -> None:
        self._file, self.room = file, room

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, piece: Any) -> int:
        fits = self.room - self._file.tell()
        if fits <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return int(self._file.write(piece[:fits]))


def test_a_full_disk_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    make = tempfile.TemporaryFile
    full = [Full(make(buffering=0), 5000)]
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: full[0])
    queue: SpillQueue[int] = SpillQueue(0, 0, "input 0 of operator 'wait' (/wait#3)")
    refused = []
    for number in range(9):
        try:
            queue.append((number, np.full(1000, number, np.uint8), 1000))
        except SpillError as error:
            refused.append(str(error))
    assert len(refused) == 4
    assert "'wait' (/wait#3)" in refused[0] and "No space left" in refused[0] and "TMPDIR" in refused[0]
    assert [int(batch[0]) for _, batch, _ in queue] == list(range(9))
    full[0].room = 100_000  # somebody has made room
    queue.append((9, np.full(1000, 9, np.uint8), 1000))
    assert queue.paged == 9
    assert [set(queue.popleft()[1].tolist()) for _ in range(10)] == [{number} for number in range(10)]


def test_a_file_that_nothing_could_be_written_to_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    full = Full(tempfile.TemporaryFile(buffering=0), 0)  # noqa: SIM115
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: full)
    queue: SpillQueue[int] = SpillQueue(0, 0, "an input")
    queue.append((0, [0], 1))
    with pytest.raises(SpillError, match="No space left"):
        queue.append((1, [1], 1))
    queue.clear()
    assert full.closed


def test_no_directory_for_files_is_an_error_that_names_the_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    queue: SpillQueue[int] = SpillQueue(0, 0, "an input")
    queue.append((0, [0], 1))
    with pytest.raises(SpillError, match="TMPDIR"):
        queue.append((1, [1], 1))
    assert [batch for _, batch, _ in queue] == [[0], [1]]
    queue.clear()


class Stubborn:
    def __reduce__(self) -> Any:
        raise TypeError("not me")


@pytest.mark.parametrize("batch", [[Stubborn()], [*range(5), Stubborn(), *range(94)]])
def test_a_record_that_cannot_be_pickled_stays_in_memory(batch: list[Any]) -> None:
    queue: SpillQueue[int] = SpillQueue(0, 0, "an input")
    with pytest.raises(SpillError, match="an input: .*not me.*pickled"):
        queue.append((0, batch, len(batch)))
        queue.append((1, [1], 1))
    assert next(iter(queue))[1] is batch
    queue.clear()


def test_what_cannot_be_read_back_stays_where_it_is(files: list[Any]) -> None:
    queue: SpillQueue[int] = SpillQueue(0, 0, "an input")
    for number in range(3):
        queue.append((number, [number], 1))
    os.truncate(files[0].fileno(), 0)
    for _ in range(2):
        with pytest.raises(SpillError, match="ends too early"):
            queue.popleft()
    assert len(queue) == 3
    queue.clear()


# -- dataflows -------------------------------------------------------------------------------------------------------


def wait(capability: Any, info: Any) -> Callable[[Any, Any, Any], None]:
    """An operator that leaves everything unread until nothing more can come to its second input."""

    def logic(input: Any, gate: Any, output: Any) -> None:
        if not gate.frontier.elements:
            for capability, batch in input:
                output.session(capability).give_batch(batch)

    return logic


def held(stream: Any, gate: Any, pact: Any) -> Any:
    return stream.binary_frontier(gate, pact, timely.Pipeline, "wait", wait)


def sums(pact: Any, rounds: int = 4) -> Callable[[timely.Worker], list[Any]]:
    """A program that exchanges numbers, and has them wait."""

    def program(worker: timely.Worker) -> list[Any]:
        with worker.dataflow(int) as scope:
            (handle, stream), (gate, closed) = scope.new_input(), scope.new_input()
            seen = held(stream, closed, pact).capture()
        for epoch in range(rounds):
            handle.advance_to(epoch)
            handle.send_batch(list(range(100 * worker.index, 100 * worker.index + 20)))
            worker.step()
        handle.close()
        gate.close()
        worker.run()
        return [(time, sorted(batch)) for time, batch in seen.extract()]

    return program


PACTS: dict[str, Any] = {
    "pipeline": timely.Pipeline,
    "exchange": timely.Exchange(lambda x: x),
    "distribute": timely.Distribute(lambda time, batch, workers: [(time % workers, batch)]),
}


@pytest.mark.parametrize(("workers", "processes"), [(1, 1), (2, 1), (3, 1), (1, 2)])
@pytest.mark.parametrize("pact", PACTS)
def test_the_same_comes_out_as_without(pact: str, workers: int, processes: int) -> None:
    spilling = timely.Spill(PACTS[pact], threshold=0, reserve=0)
    expected = timely.execute(sums(PACTS[pact]), workers=workers, processes=processes)
    assert timely.execute(sums(spilling), workers=workers, processes=processes) == expected


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("threshold", "reserve"), [(0, 0), (100, 50)])
def test_the_accounts_are_right_in_odd_schedules(seed: int, threshold: int, reserve: int, files: list[Any]) -> None:
    pact = PACTS["exchange"]
    spilling = timely.Spill(pact, threshold=threshold, reserve=reserve)
    simulated = simulate(sums(spilling), workers=3, seed=seed)
    assert simulated.results == timely.execute(sums(pact), workers=3)
    assert files


def halves(pact: Any) -> Callable[[timely.Worker], list[Any]]:
    """A loop in which numbers are halved until they are one, with an input that may spill."""

    def halve(capability: Any, info: Any) -> Callable[[Any, Any], None]:
        def logic(input: Any, output: Any) -> None:
            for capability, batch in input:
                session = output.session(capability)
                for x in batch:
                    session.give(x // 2)
                    session.flush()  # many messages

        return logic

    def program(worker: timely.Worker) -> list[Any]:
        with worker.dataflow(int) as scope:
            stream = scope.to_stream(range(1, 40) if worker.index == 0 else [])
            with scope.iterative() as loop:
                feedback, again = loop.feedback(ProductSummary(Step(0), Step(1)))
                halved = stream.enter(loop).concat(again).unary(pact, "halve", halve)
                halved.map_batch(lambda batch: [x for x in batch if x > 1]).connect_loop(feedback)  # message by message
                ones = halved.filter(lambda x: x == 1).leave()
            seen = ones.capture()
        worker.run()
        return [(time, len(batch)) for time, batch in seen.extract()]

    return program


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_in_a_loop(workers: int, files: list[Any]) -> None:
    pact = timely.Exchange(lambda x: x)
    results = timely.execute(halves(timely.Spill(pact, threshold=20, reserve=0)), workers=workers)
    assert sum(count for messages in results for _, count in messages) == 38  # 1 becomes 0
    assert files
    assert simulate(halves(timely.Spill(pact, threshold=20, reserve=0)), workers=workers, seed=workers).results == results


def holding(pact: Any) -> tuple[timely.Worker, Any, Any, Any]:
    """A worker on which everything waits for as long as the last that is returned is open."""
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        (handle, stream), (gate, closed) = scope.new_input(), scope.new_input()
        held(stream, closed, pact)
    return worker, scope, handle, gate


def test_a_dataflow_that_is_dropped_gives_its_files_back(files: list[Any]) -> None:
    worker, scope, handle, gate = holding(timely.Spill(threshold=0, reserve=0))
    for epoch in range(5):
        handle.send_batch([epoch])
        worker.step()
    assert [file.closed for file in files] == [gate.closed] == [False]
    worker.drop_dataflow(scope)
    gc.collect()
    assert [file.closed for file in files] == [True]


def test_errors_name_the_operator_whose_input_it_is() -> None:
    worker, _, handle, gate = holding(timely.Spill(threshold=0, reserve=0))
    with pytest.raises((SpillError, OperatorError), match=r"operator 'wait' \(.*wait#.*not me"):
        handle.send_batch([Stubborn()])
        worker.step()
    assert not gate.closed
    worker.close()


@pytest.mark.parametrize(("workers", "processes"), [(1, 1), (3, 1), (1, 2)])
def test_a_run_that_cannot_spill_ends_with_the_error(
    workers: int, processes: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises((SpillError, OperatorError), match=r"operator 'wait' \(.*wait#.*TMPDIR"):
        timely.execute(sums(timely.Spill(PACTS["exchange"], threshold=0, reserve=0)), workers=workers, processes=processes)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"threshold": -1, "reserve": -1}, ConfigurationError),
        ({"threshold": 10, "reserve": 11}, ConfigurationError),
        ({"threshold": 10.5, "reserve": 1}, ConfigurationError),
        ({"pact": timely.Spill()}, GraphError),
        ({"pact": "pipeline"}, GraphError),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind, match=r"threshold=|Spill takes"):
        timely.Spill(**options)


def test_what_files_need_is_loaded_when_a_dataflow_is_built_that_may_need_them() -> None:
    program = (
        "import sys, timely\n"
        "assert 'tempfile' not in sys.modules\n"
        "with timely.Worker().dataflow() as scope:\n"
        "    scope.to_stream([1]).unary(timely.Spill(), 'reads', lambda capability, info: lambda input, output: None)\n"
        "assert 'tempfile' in sys.modules\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
