"""Among several workers, threads and processes, it is named which of them holds what, and where their programs are.

White box: how long a peer may take to answer is set, so that no answer is late or all are.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import timely
from timely.inspect import Explanation, capability_holders
from timely.progress import ProgressMode

SHAPES: list[tuple[int, int, ProgressMode]] = [
    (1, 3, "tree"),
    (2, 2, "process"),
]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is asked has as long as a busy machine may need to let it answer."""
    monkeypatch.setattr(capability_holders, "_SECONDS", 60.0)


def holder(stream: timely.Stream[Any, Any], held: list[Any], on: int) -> timely.Stream[Any, Any]:
    """Deals the records to the workers, and keeps a capability for each time on one of them."""

    def constructor(capability: Any, info: timely.OperatorInfo) -> Any:
        def logic(input: Any, output: Any) -> None:
            for cap, batch in input:
                if info.worker == on:
                    held.append(cap.retain())
                output.session(cap).give_many(batch)

        return logic

    return stream.unary(timely.Exchange(lambda x: x), "holder", constructor)


def settle(worker: timely.Worker, rounds: int = 12) -> None:
    """Step until nothing can move, and all have received all."""
    for _ in range(rounds):
        while not worker.idle:
            worker.step()
        worker.all_gather(None)


@pytest.mark.parametrize(("workers", "processes", "progress"), SHAPES)
def test_it_is_named_which_worker_holds_what_however_deep(workers: int, processes: int, progress: ProgressMode) -> None:
    peers = workers * processes

    def program(worker: timely.Worker) -> tuple[str, list[Any]]:
        held: list[Any] = []
        with worker.dataflow(int, name="df") as scope:
            numbers, stream = scope.new_input()
            with scope.iterative("outer") as outer:
                back, again = outer.feedback()
                both = stream.enter(outer).concat(again)
                with outer.iterative("inner") as inner:
                    stored = holder(both.enter(inner), held, on=2).leave()
                small, large = stored.map(lambda x: x + peers).branch(lambda x: x >= 3 * peers)
                small.connect_loop(back)
            probe = large.leave().probe()
        numbers.send(worker.index)
        if worker.index != 1:
            numbers.close()
        settle(worker)
        result = worker.explain(probe)
        worker.all_gather(None)  # nobody goes on before all have asked
        held.clear()
        numbers.close()
        return str(result), [(reason.operator, reason.time, reason.count, dict(reason.by_worker)) for reason in result.reasons]

    for text, reasons in timely.execute(program, workers=workers, processes=processes, progress=progress):
        assert [reason[1:] for reason in reasons if reason[0] == "input"] == [(0, 1, {1: 1})]
        stored = [reason[1:] for reason in reasons if reason[0] == "holder"]
        assert {time.outer.inner for time, _, _ in stored} == {0, 1, 2}  # also what could result from another
        assert all(count == 1 and where == {2: 1} for _, count, where in stored)
        assert len(reasons) == 4
        assert "that no worker has" not in text
        assert "1 on worker 1" in text
        assert "3 on worker 2" in text


def test_unread_records_are_found_on_the_worker_where_they_wait() -> None:
    def program(worker: timely.Worker) -> list[Any]:
        with worker.dataflow(int, name="df") as scope:
            numbers, stream = scope.new_input()
            lazy = stream.unary(timely.Exchange(lambda x: x), "lazy", lambda cap, info: lambda input, output: None)
            probe = lazy.probe()
        numbers.send_batch([0, 1, 1])
        settle(worker, 3)
        collected = [
            (reason.kind, reason.count, dict(reason.by_worker))
            for reason in worker.explain(probe).reasons
            if reason.operator == "lazy"
        ]
        worker.all_gather(None)
        worker.drop_dataflow(scope)
        return collected

    assert timely.execute(program, processes=2) == [[("message", 6, {0: 2, 1: 4})]] * 2


def wait_for(path: Path) -> None:
    """Wait until another worker has made a file."""
    while not path.exists():
        threading.Event().wait(0.01)


@pytest.mark.parametrize(("workers", "processes"), [(2, 1), (1, 2)])
def test_a_worker_that_is_stuck_in_an_operator_is_asked_all_the_same(workers: int, processes: int, tmp_path: Path) -> None:
    inside, asked = tmp_path / "inside", tmp_path / "asked"

    def dawdle(x: int) -> int:
        inside.touch()
        wait_for(asked)
        return x

    def program(worker: timely.Worker) -> tuple[str, Any]:
        with worker.dataflow(int, name="df") as scope:
            numbers, stream = scope.new_input()
            probe = stream.map(dawdle).probe()
        worker.all_gather(None)
        result = None
        if worker.index == 1:
            numbers.send(1)
            worker.step()
        else:
            wait_for(inside)
            result = worker.explain(probe)
            asked.touch()
        numbers.close()
        return str(result), None if result is None else [
            (where.worker, where.operators, where.lines) for where in result.positions
        ]

    (text, positions), _ = timely.execute(program, workers=workers, processes=processes)
    [(index, [operator], lines)] = positions
    assert index == 1
    assert operator.startswith("'map · dawdle' (/df/map · dawdle#1, built at test_explain_peers.py:")
    assert any("in dawdle" in line for line in lines)
    assert all("in run_worker" not in line and "_bootstrap" not in line for line in lines)
    assert "1 on worker 0, 1 on worker 1" in text
    assert "worker 1 runs operator 'map · dawdle'" in text


@pytest.mark.parametrize(("workers", "processes"), [(2, 1), (1, 2)])
def test_a_worker_that_has_not_built_the_dataflow_is_named(workers: int, processes: int, tmp_path: Path) -> None:
    asked = tmp_path / "asked"

    def program(worker: timely.Worker) -> tuple[str, Any]:
        worker.all_gather(None)
        if worker.index == 1:
            wait_for(asked)
        with worker.dataflow(int, name="df") as scope:
            numbers, stream = scope.new_input()
            probe = stream.probe()
        result = worker.explain(probe) if worker.index == 0 else None
        asked.touch()
        numbers.close()
        return str(result), None if result is None else (result.missing, [where.worker for where in result.positions])

    (text, seen), _ = timely.execute(program, workers=workers, processes=processes)
    assert seen == ((1,), [1])
    assert "this dataflow is not built yet, or is dropped, on worker 1" in text
    assert "in wait_for" in text


def test_a_process_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capability_holders, "_SECONDS", 0.1)

    def program(worker: timely.Worker) -> str:
        with worker.dataflow(int, name="df") as scope:
            numbers, stream = scope.new_input()
            probe = stream.probe()
        pids = worker.all_gather(os.getpid())
        message = ""
        if worker.index == 0:
            os.kill(pids[1], signal.SIGSTOP)
            message = str(worker.explain(probe))
            os.kill(pids[1], signal.SIGCONT)
        worker.all_gather(None)
        numbers.close()
        return message

    message, _ = timely.execute(program, processes=2)
    assert "nothing is known of worker 1: in a process that does not answer within 0.1 s" in message
    assert "1 on no worker that could be asked" in message


def test_a_process_that_has_ended_is_named(tmp_path: Path) -> None:
    ended = tmp_path / "ended"

    def program(worker: timely.Worker) -> None:
        with worker.dataflow(int, name="df") as scope:
            _, stream = scope.new_input()
            probe = stream.probe()
        pids = worker.all_gather(os.getpid())
        if worker.index == 1:
            os._exit(0)
        with contextlib.suppress(OSError):  # once it is gone
            while os.listdir(f"/proc/{pids[1]}/fd"):
                threading.Event().wait(0.01)
        ended.write_text(str(worker.explain(probe)))

    if not Path("/proc/self/fd").exists():
        pytest.skip("it is seen in /proc that a process has closed what it had")
    with pytest.raises(timely.TimelyError):
        timely.execute(program, processes=2)
    assert "nothing is known of worker 1: in a process that has ended" in ended.read_text()


@pytest.mark.parametrize("build", [lambda scope: scope.new_input(), lambda scope: scope.new_input()[1].map(str)])
def test_two_dataflows_of_one_name_are_distinguished(build: Callable[[Any], Any]) -> None:
    def program(worker: timely.Worker) -> Explanation:
        scopes, held = [], []
        for _ in range(2):
            with worker.dataflow(int, name="df") as scope:
                held.append((scope.new_input(), build(scope)))
            scopes.append(scope)
        settle(worker, 2)
        result = worker.explain(scopes[0])
        worker.all_gather(None)
        for scope in scopes:
            worker.drop_dataflow(scope)
        gc.collect()
        return result

    for result in timely.execute(program, workers=2):
        assert result.reasons
        assert all(reason.count == 2 and reason.by_worker == {0: 1, 1: 1} for reason in result.reasons)
