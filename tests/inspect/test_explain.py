"""What holds a frontier back is named: the operator, the worker, the line that built it, and the way from there.

Among several workers, threads and processes, it is named which of them holds what, and where their programs are.

White box: another thread looks while a capability is given up or a call ends, and only the look itself can be held just then.
How long a peer may take to answer is set, so that no answer is late or all are.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timely
from tests.dataflow.own_scopes import Own
from timely.errors import GraphError
from timely.inspect import Explanation, capability_holders, explain
from timely.memory.paged_file import PagedFile
from timely.monitor.local_workers import Member
from timely.progress import Antichain, ProgressMode
from timely.worker.internals import expects


def hoard(
    stream: timely.Stream[Any, Any], held: list[Any], name: str = "hoarder", on: int | None = None
) -> timely.Stream[Any, Any]:
    """An operator that passes everything on, and keeps a capability for each time; dealt to all workers, on one of them."""

    def constructor(capability: Any, info: timely.OperatorInfo) -> Any:
        def logic(input: Any, output: Any) -> None:
            for cap, batch in input:
                if on in (None, info.worker):
                    held.append(cap.retain())
                output.session(cap).give_many(batch)

        return logic

    return stream.unary(timely.Pipeline if on is None else timely.Exchange(lambda x: x), name, constructor)


def ignore(stream: timely.Stream[Any, Any]) -> timely.Stream[Any, Any]:
    """An operator that never reads."""
    return stream.unary(timely.Pipeline, "never reads", lambda capability, info: lambda input, output: None)


def settle(worker: timely.Worker, steps: int = 30) -> None:
    for _ in range(steps):
        worker.step()


def test_unread_records_are_counted_where_they_wait() -> None:
    worker = timely.Worker()
    with worker.dataflow(name="df") as scope:
        numbers, stream = scope.new_input()
        probe = ignore(stream).probe()
    numbers.send_batch([1, 2, 3])
    numbers.close()
    settle(worker)
    [reason] = worker.explain(probe).reasons
    assert (reason.kind, reason.operator, reason.count, reason.by_worker) == ("message", "never reads", 3, {0: 3})
    assert "has not read 3 records at 0" in str(reason)


@pytest.mark.parametrize("aside", [False, True])
def test_workers_of_one_process_are_distinguished(aside: bool) -> None:
    ready, over = threading.Barrier(2), threading.Barrier(2)

    def program(worker: timely.Worker) -> Explanation:
        with worker.dataflow(name="df") as scope:
            numbers, stream = scope.new_input()
            probe = stream.exchange(lambda x: x).probe()
        numbers.advance_to(worker.index)
        settle(worker)
        ready.wait()  # all that either has to tell has been sent
        settle(worker)
        if aside:
            gc.freeze()  # as a program may that has loaded its data
        result = worker.explain(probe)
        over.wait()
        numbers.close()
        return result

    for result in timely.execute(program, workers=2):
        assert result.frontier == (0,)
        assert [(reason.time, reason.by_worker) for reason in result.reasons] == [(0, {0: 1})]


def test_a_dataflow_that_is_not_complete_names_what_it_waits_for_and_not_the_consequences() -> None:
    worker, held = timely.Worker(), list[Any]()
    with worker.dataflow(name="df") as scope:
        numbers, stream = scope.new_input()
        hoard(hoard(stream, held, "first"), held, "second")
    numbers.send(1)
    numbers.close()
    settle(worker)
    result = explain(worker, scope)
    assert [reason.operator for reason in result.reasons] == ["first"]
    assert "not reached" in str(result)
    held.clear()
    worker.run()
    assert "complete" in str(explain(worker, scope))


def test_what_cannot_be_explained_is_refused() -> None:
    with pytest.raises(timely.ConfigurationError, match="a probe or an input of an operator, or the scope of a dataflow, not 5"):
        timely.Worker().explain(5)  # type: ignore[arg-type]


def test_a_place_of_another_worker_is_not_called_complete() -> None:
    worker = timely.Worker()
    with worker.dataflow(name="df") as scope:
        numbers, stream = scope.new_input()
        inner = stream.probe()
        with scope.iterative() as loop:
            inside = stream.enter(loop).probe()
    places: list[Any] = [scope, loop, stream, inner, inside, *inner.ports]
    for what in places:
        with pytest.raises(timely.ConfigurationError, match="is in a dataflow of another worker, of index 0: ask that one"):
            timely.Worker().explain(what)
        assert "may still send at 0" in str(worker.explain(what))
    numbers.close()
    worker.run()
    for what in places:  # and so it is when nothing is left that one could tell it by
        with pytest.raises(timely.ConfigurationError):
            timely.Worker().explain(what)


def test_a_dataflow_that_is_still_being_built_is_not_called_complete() -> None:
    worker = timely.Worker()
    with worker.dataflow(name="df") as scope:
        _, stream = scope.new_input()
        for what in (scope, stream, stream.probe()):
            with pytest.raises(GraphError, match="/df is not built yet"):
                worker.explain(what)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.booleans()), max_size=12), st.integers(0, 12))
def test_the_reasons_of_a_frontier_are_exactly_what_it_is_made_of(deeds: list[tuple[int, int, bool]], steps: int) -> None:
    worker, held = timely.Worker(), list[Any]()
    with worker.dataflow(name="df") as scope:
        handles, streams = zip(*[scope.new_input() for _ in range(3)])
        with scope.iterative("loop") as loop:
            handle, again = loop.feedback()
            both = hoard(streams[0].enter(loop).concat(again).concat(streams[1].enter(loop)), held)
            both.map(lambda x: x - 1).filter(lambda x: x > 0).connect_loop(handle)
            with loop.region("deeper") as region:
                out = ignore(both.enter(region)).leave()
            places: list[Any] = [both, out, out.probe()]
        places += [both.leave().concat(streams[2]).probe(), streams[1]]
    for which, record, advance in deeds:
        handles[which].send(record)
        if advance:
            handles[which].advance_to(handles[which].time + 1)
        if held and not advance:
            held.pop()
        for _ in range(steps % 3):
            worker.step()
    for _ in range(steps):
        worker.step()
    for subgraph in scope.scopes:
        tracker = subgraph.trackers[0]
        apart = {place: Antichain(blocker.arrives_at for blocker in tracker.arrivals(place)) for place in tracker.locations}
        assert tracker.frontiers() == apart
        first = []
        for (location, time), count in tracker.counts().items():
            before = [(b.location, b.time) for b in tracker.arrivals(location) if b.arrives_at <= time]
            if count > 0 and set(before) == {(location, time)}:
                first.append((location, time))
        assert tracker.origins() == first
    for place in places:
        result = worker.explain(place)
        if isinstance(place, timely.Stream):
            expected = place.scope.subgraph.trackers[0].frontier(place.source)
        else:
            expected = place.frontier()
        assert Antichain(result.frontier) == expected
        assert Antichain(reason.arrives_at for reason in result.reasons) == expected
        assert all(reason.count >= sum(reason.by_worker.values()) >= 0 for reason in result.reasons)
        assert {arrived for reason in result.reasons for arrived in [reason.arrives_at]} == set(expected)


@pytest.mark.parametrize("seed", range(20))
def test_a_frontier_moves_when_all_that_is_named_is_given_up(seed: int) -> None:
    rng, worker, held = random.Random(seed), timely.Worker(), list[Any]()
    with worker.dataflow(name="df") as scope:
        numbers, stream = scope.new_input()
        with scope.iterative("outer") as outer:
            back, again = outer.feedback()
            now = hoard(stream.enter(outer).concat(again), held)
            with outer.iterative("inner") as inner:
                more, once_more = inner.feedback()
                lower = hoard(now.enter(inner).concat(once_more), held).map(lambda n: n - 1)
                with inner.region("region") as region:
                    odd, even = hoard(lower.enter(region), held).leave().branch(lambda n: n % 2 == 0)
                odd.filter(lambda n: n > 0).connect_loop(more)
                out = even.leave()
            out.filter(lambda n: n > 0).connect_loop(back)
        probe = out.leave().probe()
    numbers.send_batch([rng.randrange(9) for _ in range(3)])
    numbers.close()
    settle(worker, 60)
    held[:] = [cap for cap in held if rng.random() < 0.5]
    settle(worker)
    while held:
        before = explain(worker, probe)
        named = {(reason.path, reason.time) for reason in before.reasons}
        assert named
        left = [cap for cap in held if (cap.port.operator.path, cap.time) not in named]
        assert len(held) - len(left) == sum(reason.count for reason in before.reasons)
        held[:] = left
        settle(worker)
        assert not set(explain(worker, probe).frontier) & set(before.frontier)
    assert explain(worker, probe).reasons == ()


def test_a_capability_that_is_given_up_while_another_thread_asks_is_let_go_of_by_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker, held = timely.Worker(), list[Any]()
    with worker.dataflow(int, name="df") as scope:
        numbers, stream = scope.new_input()
        hoard(stream, held)
    numbers.send(1)
    numbers.close()
    settle(worker)
    real = gc.get_referrers

    def found_as_it_goes(*ports: Any) -> list[Any]:
        result = real(*ports)
        held.clear()
        return result

    [reason] = explain(worker, scope).reasons
    monkeypatch.setattr(gc, "get_referrers", found_as_it_goes)
    members, result = [Member(worker, threading.get_ident())], list[capability_holders.Holdings]()
    question = capability_holders.Question(0, frozenset([reason.place]))
    thread = threading.Thread(target=lambda: result.extend(capability_holders.holdings(members, question)))
    thread.start()
    thread.join()
    monkeypatch.undo()
    assert [dict(each.counts or {}) for each in result] == [{(reason.place, 0): 1}]
    assert held == []
    assert [(reason.operator, reason.count) for reason in explain(worker, scope).reasons] == [("hoarder", 1)]
    assert expects(worker)
    assert not worker.idle
    worker.run()
    assert not expects(worker)


def test_a_call_that_ends_while_another_thread_looks_at_it_is_let_go_of_by_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()
    looked, let_go = threading.Event(), list[int]()

    class Token:
        def __del__(self) -> None:
            let_go.append(threading.get_ident())

    def call() -> None:
        token = Token()
        begun.set()
        assert go.wait(600)
        del token

    def inner() -> None:
        token = Token()  # goes with the frame
        call()
        assert token is not None

    def work() -> None:
        inner()
        ended.set()
        assert looked.wait(600)
        worker.step()

    def lines(frame: Any) -> tuple[str, ...]:
        go.set()
        assert ended.wait(600)
        return ("somewhere",)

    worker = timely.Worker()
    with worker.dataflow(int, name="df") as scope:
        numbers, _ = scope.new_input()
    monkeypatch.setattr(capability_holders, "_lines", lines)
    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(600)
    result = capability_holders.position(Member(worker, thread.ident))
    assert result is not None
    assert result.lines == ("somewhere",)
    looked.set()
    thread.join()
    assert let_go == [thread.ident] * 2
    numbers.close()
    worker.run()
    assert scope is not None


def test_what_waits_on_disk_is_counted_and_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = timely.Worker()
    with worker.dataflow(int, name="df") as scope:
        numbers, stream = scope.new_input()
        pact = timely.Spill(threshold=0, reserve=0)
        stream.unary(pact, "lazy", lambda capability, info: lambda input, output: None)
    for _ in range(5):
        numbers.send_batch([b"x" * 100])
        numbers.flush()
        worker.step()
    numbers.close()
    worker.step()
    monkeypatch.setattr(PagedFile, "read", lambda self, page: pytest.fail("it is for the worker to read"))
    [reason] = [reason for reason in explain(worker, scope).reasons if reason.kind == "message"]
    assert reason.count == 5
    result = capability_holders.holdings([Member(worker)], capability_holders.Question(0, frozenset([reason.place])))
    assert [dict(each.counts or {}) for each in result] == [{(reason.place, 0): 5}]
    worker.close()


def test_of_many_capabilities_those_listed_first_are_resolved() -> None:
    def program(worker: timely.Worker) -> list[Any]:
        with worker.dataflow(int, name="df") as scope:
            for _ in range(40):
                scope.to_stream([1]).unary(timely.Pipeline, "idle", lambda capability, info: lambda input, output: None)
            handles = [scope.new_input()[0] for _ in range(80)]
        for _ in range(5):
            worker.step()
            worker.all_gather(None)
        reasons = worker.explain(scope).reasons
        worker.all_gather(None)
        worker.drop_dataflow(scope)
        assert len(handles) == 80
        return [sum(reason.by_worker.values()) == reason.count for reason in reasons]

    for result in timely.execute(program, workers=2):
        assert len(result) == 120
        assert all(result[:64])


class Waiting(Own):
    """A custom scope that waits for something outside, and holds nothing meanwhile."""

    patient, over = True, False

    def work(self, *counts: Any) -> bool:
        return not self.over


@pytest.mark.parametrize("nested", [False, True])
def test_a_scope_that_has_work_left_and_holds_nothing_is_named_for_the_end_and_for_no_frontier(nested: bool) -> None:
    worker, waiting = timely.Worker(), Waiting()
    with worker.dataflow(name="df") as scope:
        numbers, stream = scope.new_input()
        if nested:
            with scope.region("inside") as inner:
                probe = inner.add_scope(waiting, [stream.enter(inner)])[0].leave().probe()
        else:
            probe = scope.add_scope(waiting, [stream])[0].probe()
    numbers.close()
    settle(worker)
    result = worker.explain(scope)
    [unfinished] = result.unfinished
    assert result.reasons == () and unfinished.path == ("/df/inside#1/Waiting#0" if nested else "/df/Waiting#1")
    assert unfinished.origin is not None and unfinished.origin.file == __file__
    assert str(result).startswith("the end of /df on worker 0 is not reached, because\n  - scope 'Waiting' (/df/")
    assert "it returned True when it was last pulled; return False once nothing is unreported" in str(result)
    assert "complete" in str(worker.explain(probe)) and worker.explain(probe).unfinished == ()
    waiting.over = True
    waiting.activate()
    worker.run()
    assert str(worker.explain(scope)) == "the end of /df on worker 0 is complete: nothing can come any more"


def test_a_dataflow_that_was_dropped_is_not_called_complete() -> None:
    worker = timely.Worker()
    with worker.dataflow(name="df") as scope:
        numbers, stream = scope.new_input()
        with scope.region("inside") as inner:
            nested = stream.enter(inner).map(str).probe()
        probe = stream.probe()
    with worker.dataflow(name="other") as other:
        held, again = other.new_input()
        again.probe(probe)
    worker.step()
    assert not worker.explain(probe).dropped and not worker.explain(scope).dropped
    worker.drop_dataflow(scope)
    for what, name in ((scope, "the end of /df"), (nested, "/df/inside#1/probe#1"), (stream, "output 0 of /df/input#0")):
        result = worker.explain(what)
        assert result.dropped and result.reasons == ()
        assert str(result) == f"{name} on worker 0 is of a dataflow that was dropped: nothing comes any more"
    result = worker.explain(probe)  # which shows another dataflow too, that is still there
    assert result.dropped and [reason.path for reason in result.reasons] == ["/other/input#0"]
    assert "is at 0, because" in str(result)
    held.close()
    worker.run()
    worker.drop_dataflow(other)
    assert not worker.explain(other).dropped and "is complete: nothing can come" in str(worker.explain(other))
    assert not numbers.closed


SHAPES: list[tuple[int, int, ProgressMode]] = [
    (1, 3, "tree"),
    (2, 2, "process"),
]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is asked has as long as a busy machine may need to let it answer."""
    monkeypatch.setattr(capability_holders, "_SECONDS", 60.0)


def settle_all(worker: timely.Worker, rounds: int = 12) -> None:
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
                    stored = hoard(both.enter(inner), held, on=2).leave()
                small, large = stored.map(lambda x: x + peers).branch(lambda x: x >= 3 * peers)
                small.connect_loop(back)
            probe = large.leave().probe()
        numbers.send(worker.index)
        if worker.index != 1:
            numbers.close()
        settle_all(worker)
        result = worker.explain(probe)
        worker.all_gather(None)  # nobody goes on before all have asked
        held.clear()
        numbers.close()
        return str(result), [(reason.operator, reason.time, reason.count, dict(reason.by_worker)) for reason in result.reasons]

    for text, reasons in timely.execute(program, workers=workers, processes=processes, progress=progress):
        assert [reason[1:] for reason in reasons if reason[0] == "input"] == [(0, 1, {1: 1})]
        stored = [reason[1:] for reason in reasons if reason[0] == "hoarder"]
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
        settle_all(worker, 3)
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
    assert operator.startswith("'map · dawdle' (/df/map · dawdle#1, built at test_explain.py:")
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
        settle_all(worker, 2)
        result = worker.explain(scopes[0])
        worker.all_gather(None)
        for scope in scopes:
            worker.drop_dataflow(scope)
        gc.collect()
        return result

    for result in timely.execute(program, workers=2):
        assert result.reasons
        assert all(reason.count == 2 and reason.by_worker == {0: 1, 1: 1} for reason in result.reasons)
