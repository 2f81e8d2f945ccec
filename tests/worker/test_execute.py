"""``execute``: results, closures, failures of every kind with threads and processes, and workers stepped by hand.

That nothing hangs is held by pytest's own time limit, which prints every stack; no test asserts on time.
"""

from __future__ import annotations

import gc
import multiprocessing.context
import os
import signal
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import timely
from tests.worker.processes import exchanging
from timely import OperatorError, WorkerError
from timely.inspect import everywhere

SIZES = [(1, 1), (2, 1), (3, 1), (1, 2), (1, 3), (2, 2)]
sizes = pytest.mark.parametrize(("workers", "processes"), SIZES)


def over_three(program: Callable[[timely.Worker], Any], kind: str) -> list[Any]:
    """Run on three workers, as threads or as processes."""
    threads = kind == "threads"
    return timely.execute(program, workers=3 if threads else 1, processes=1 if threads else 3)


kinds = pytest.mark.parametrize("kind", ["threads", "processes"])


# -- results -----------------------------------------------------------------------------------------------------------


@sizes
def test_results_come_in_worker_order(workers: int, processes: int) -> None:
    size = workers * processes
    results = timely.execute(lambda worker: (worker.index, worker.peers), workers=workers, processes=processes)
    assert results == [(index, size) for index in range(size)]


@sizes
def test_workers_are_where_they_should_be(workers: int, processes: int) -> None:
    results = timely.execute(lambda worker: (os.getpid(), threading.current_thread().name), workers=workers, processes=processes)
    assert len({pid for pid, _ in results}) == processes
    assert len(set(results)) == workers * processes


@sizes
def test_a_closure_is_a_program(workers: int, processes: int) -> None:
    words = ["a", "b"]

    class Local:
        def __init__(self, index: int) -> None:
            self.index = index

        def shout(self, word: str) -> str:
            return word.upper() * (self.index + 1)

    def program(worker: timely.Worker) -> list[tuple[int, list[str]]]:
        local = Local(worker.index)
        with worker.dataflow(int) as scope:
            seen = scope.to_stream(words).map(local.shout).capture()
        worker.run()
        return seen.extract()

    results = timely.execute(program, workers=workers, processes=processes)
    assert results == [[(0, ["A" * (i + 1), "B" * (i + 1)])] for i in range(workers * processes)]


@sizes
def test_a_large_result_comes_back_whole(workers: int, processes: int) -> None:
    results = timely.execute(lambda worker: bytes([worker.index]) * 3_000_000, workers=workers, processes=processes)
    assert [(len(result), result[-1]) for result in results] == [(3_000_000, i) for i in range(workers * processes)]


def test_a_result_that_cannot_be_pickled_is_an_error_with_its_type() -> None:
    with pytest.raises(WorkerError, match="the result of worker .*of type function, cannot be sent back"):
        timely.execute(lambda worker: lambda: 1, processes=2)
    assert timely.execute(lambda worker: lambda: 7, workers=2)[1]() == 7


class Elsewhere:
    """Can be pickled, and be read in the process that made it only."""

    def __reduce__(self) -> tuple[Any, ...]:
        return read_in, (os.getpid(),)


def read_in(process: int) -> None:
    if os.getpid() != process:
        raise EOFError("it is for its own process")


def test_a_result_that_cannot_be_read_is_an_error_with_its_type() -> None:
    with pytest.raises(WorkerError, match="of type Elsewhere, cannot be sent back: it is for its own") as failure:
        timely.execute(lambda worker: Elsewhere(), processes=2)
    assert "in read_in" in "".join(failure.value.__notes__)


def test_a_result_is_read_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    results: list[Any] = timely.execute(lambda worker: Noted(str(log)), processes=2)
    assert results == ["read", "read"]
    assert log.read_text() == f"{os.getpid()} {os.getpid()} "


class Noted:
    """Notes in a file where it is read."""

    def __init__(self, log: str) -> None:
        self.log = log

    def __reduce__(self) -> tuple[Any, ...]:
        return note, (self.log,)


def note(log: str) -> str:
    with open(log, "a") as file:
        file.write(f"{os.getpid()} ")
    return "read"


def test_nothing_is_left_behind() -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    timely.execute(lambda worker: None, workers=2, processes=2)
    before, threads = open_files(), threading.active_count()
    for _ in range(3):
        timely.execute(lambda worker: None, workers=2, processes=2)
        timely.execute(lambda worker: None, workers=3)
        with pytest.raises(ValueError, match="mine"):
            timely.execute(fail_at_one, workers=2, processes=2)
    assert threading.active_count() == threads
    assert open_files() == before


# -- failures ----------------------------------------------------------------------------------------------------------


def fail_at_one(worker: timely.Worker) -> None:
    if worker.index == 1:
        raise ValueError("mine")
    numbers, probe = exchanging(worker)
    worker.step_while(lambda: not probe.done() and not numbers.closed)


def failing(deed: Callable[[int], Any]) -> Callable[[timely.Worker], None]:
    """A program in which ``deed(record)`` is done in a nested operator of worker 1, while all others wait for it."""

    def program(worker: timely.Worker) -> None:
        def inspect(record: int) -> None:
            if worker.index == 1:
                deed(record)

        with worker.dataflow(int, name="demo") as scope:
            handle, stream = scope.new_input()
            with scope.region("box") as box:
                probe = stream.exchange(lambda x: x).enter(box).inspect(inspect).leave().probe()
        for record in range(6):
            handle.send(record)
        handle.advance_to(1)
        worker.step_while(lambda: probe.less_than(1))
        worker.step_while(lambda: probe.less_than(2))  # nobody goes on to 2: only the failure ends this

    return program


def explode(record: int) -> None:
    raise KeyError(f"record {record}")


@kinds
def test_an_operator_that_raises(kind: str) -> None:
    with pytest.raises(OperatorError) as failure:
        over_three(failing(explode), kind)
    error = failure.value
    assert (error.name, error.path, error.worker) == ("inspect · inspect", "/demo/box#1/inspect · inspect#0", 1)
    assert "operator 'inspect · inspect' (/demo/box#1/inspect · inspect#0) on worker 1 raised KeyError" in str(error)
    assert isinstance(error.__cause__, KeyError)
    # the line of the user's own function is in what gets printed, wherever it ran
    assert "explode" in "".join(traceback.format_exception(error))


@kinds
def test_a_constructor_that_raises(kind: str) -> None:
    def program(worker: timely.Worker) -> None:
        def constructor(capability: Any, info: timely.OperatorInfo) -> Any:
            if worker.index == 2:
                raise KeyError("constructor")
            return lambda output: capability.drop()

        with worker.dataflow(int) as scope:
            scope.source("mine", constructor).exchange(lambda x: x).probe()

    with pytest.raises(OperatorError, match=r"operator 'mine' \(/dataflow0/mine#0\) on worker 2 raised KeyError") as failure:
        over_three(program, kind)
    assert isinstance(failure.value.__cause__, KeyError)


@pytest.mark.parametrize(("workers", "processes"), [(1, 1), (3, 1), (1, 3), (2, 2)])
def test_a_program_that_raises(workers: int, processes: int) -> None:
    program: Callable[[timely.Worker], Any] = fail_at_one if workers * processes > 1 else lambda worker: int("mine")
    with pytest.raises(ValueError, match="mine") as failure:
        timely.execute(program, workers=workers, processes=processes)
    assert any("raised by the program of worker" in note for note in failure.value.__notes__)


@pytest.mark.parametrize(("workers", "processes"), [(1, 1), (3, 1), (1, 2), (2, 2)])
def test_an_observer_may_refuse_a_worker_and_then_nobody_waits_for_it(workers: int, processes: int) -> None:
    last = workers * processes - 1

    def look(worker: timely.Worker) -> None:
        if worker.index == last:
            raise OSError("no room for a log")

    def program(worker: timely.Worker) -> None:
        with worker.dataflow(int) as scope:
            scope.to_stream([1]).exchange(lambda x: x).probe()
        worker.run()

    with everywhere(look), pytest.raises(OSError, match="no room for a log"):
        timely.execute(program, workers=workers, processes=processes)


class Stubborn(Exception):
    """An error that pickle cannot carry."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")
        self.function = lambda: 1


def test_an_error_that_cannot_be_pickled_still_has_its_text() -> None:
    def stubborn(record: int) -> None:
        raise Stubborn(1, 2)

    with pytest.raises(OperatorError, match="raised Stubborn: 1 and 2") as failure:
        over_three(failing(stubborn), "processes")
    assert "in stubborn" in "".join(traceback.format_exception(failure.value))

    def program(worker: timely.Worker) -> None:
        raise Stubborn(3, 4)

    with pytest.raises(WorkerError, match="Stubborn: 3 and 4"):
        timely.execute(program, processes=2)


class Homebound(Exception):
    """An error that can be read in its own process only."""

    def __reduce__(self) -> tuple[Any, ...]:
        return come_home, (os.getpid(), self.kind)

    def __init__(self, kind: type[Exception]) -> None:
        super().__init__("stayed at home")
        self.kind = kind


def come_home(pid: int, kind: type[Exception]) -> Homebound:
    if pid != os.getpid():
        raise kind("it is for its own process")
    return Homebound(kind)


@pytest.mark.parametrize("kind", [AttributeError, EOFError, ConnectionResetError])
def test_an_error_that_cannot_be_read_is_replaced_by_its_text(kind: type[Exception]) -> None:
    def raises(record: int) -> None:
        raise Homebound(kind)

    expected = f"cannot be read here \\({kind.__name__}: it is for its own process\\): .*Homebound: stayed at home"
    with pytest.raises(WorkerError, match=expected):
        timely.execute(lambda worker: raises(0), processes=2)
    with pytest.raises(OperatorError, match="Homebound: stayed at home") as failure:
        over_three(failing(raises), "processes")
    with pytest.raises(WorkerError, match=expected):
        raise failure.value.__cause__ or failure.value
    assert "in raises" in "".join(traceback.format_exception(failure.value))


def chained(record: int) -> None:
    """Raise an error with a note, whose cause cannot be pickled; and that has a cause, which has a context."""
    try:
        try:
            try:
                raise OSError("the disk")
            except OSError:
                raise LookupError("the file")  # noqa: B904
        except LookupError as error:
            raise Stubborn(1, 2) from error
    except Stubborn as error:
        failure = ValueError("the record")
        failure.add_note("a note")
        raise failure from error


@kinds
def test_the_causes_of_causes_arrive(kind: str) -> None:
    with pytest.raises(OperatorError) as failure:
        over_three(failing(chained), kind)
    error = failure.value.__cause__
    assert isinstance(error, ValueError) and error.__notes__[0] == "a note"
    second = error.__cause__
    assert second is not None and "1 and 2" in str(second)
    third = second.__cause__
    assert isinstance(third, LookupError) and isinstance(third.__context__, OSError) and not third.__suppress_context__


@pytest.mark.parametrize("processes", [1, 2])
def test_the_causes_of_the_members_of_a_group_arrive(processes: int) -> None:
    def program(worker: timely.Worker) -> None:
        member = KeyError("member")
        member.__cause__ = OSError("why")
        member.__cause__.__cause__ = member  # a circle must not be gone round for ever
        raise ExceptionGroup("several", [member, ValueError("other")])

    with pytest.raises(ExceptionGroup) as failure:
        timely.execute(program, processes=processes)
    member = failure.value.exceptions[0]
    assert isinstance(member.__cause__, OSError) and member.__cause__.__cause__ is member


class Mute(Exception):
    """An error that raises when it is to say what it is."""

    def __str__(self) -> str:
        raise AttributeError("no text")


@pytest.mark.parametrize(("workers", "processes"), [(1, 1), (3, 1), (1, 2), (2, 2)])
def test_an_error_without_a_text_ends_the_run_too(workers: int, processes: int) -> None:
    def mute(record: int) -> None:
        raise Mute

    def program(worker: timely.Worker) -> None:
        with worker.dataflow(int) as scope:
            probe = scope.to_stream([1]).exchange(lambda x: x).probe()
            if worker.index == 0:
                raise Mute
        worker.step_while(lambda: probe.less_than(1))

    with pytest.raises(OperatorError, match=r"\(/dataflow0/inspect#2\) on worker 0 raised Mute, which raises AttributeError"):
        timely.execute(every(mute), workers=workers, processes=processes)
    with pytest.raises(Mute):
        timely.execute(program, workers=workers, processes=processes)


class MuteType(TypeError):
    """One that looks as if something was called with other arguments than it takes, until it is asked."""

    def __str__(self) -> str:
        raise AttributeError("no text")


@pytest.mark.parametrize("place", ["constructor", "logic"])
def test_nor_does_a_mute_type_error_of_a_constructor_or_of_logic_hide_the_operator(place: str) -> None:
    def constructor(capability: Any, info: Any) -> Any:
        def logic(input: Any, output: Any) -> None:
            raise MuteType

        if place == "constructor":
            raise MuteType
        return logic

    with pytest.raises(OperatorError, match=r"'mine' \(/example/mine#1\) on worker 0 raised MuteType, which raises Attrib"):
        timely.example(lambda scope: scope.to_stream([1]).unary(timely.Pipeline, "mine", constructor))


def every(deed: Callable[[int], object]) -> Callable[[timely.Worker], None]:
    """A program in which worker 0 does ``deed`` to what comes to it."""

    def program(worker: timely.Worker) -> None:
        with worker.dataflow(int) as scope:
            stream = scope.to_stream(range(worker.peers)).exchange(lambda x: x)
            stream.inspect(lambda record: deed(record) if worker.index == 0 else None).probe()
        worker.run()

    return program


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("deed", "code"),
    [(lambda record: os._exit(3), 3), (lambda record: os.kill(os.getpid(), signal.SIGKILL), -signal.SIGKILL)],
)
def test_a_process_that_dies_without_a_word(deed: Callable[[int], Any], code: int, workers: int) -> None:
    with pytest.raises(WorkerError, match=rf"process \d \(workers .*\) ended with exit code {code} and no result"):
        timely.execute(failing(deed), workers=workers, processes=3)


# -- a worker by hand --------------------------------------------------------------------------------------------------


def test_a_process_that_cannot_be_started_ends_those_that_were(monkeypatch: pytest.MonkeyPatch) -> None:
    real, started = multiprocessing.context.ForkProcess.start, list[Any]()

    def start(self: Any) -> None:
        if started:
            raise BlockingIOError("no more processes")
        started.append(self)
        real(self)

    def program(worker: timely.Worker) -> None:
        with worker.dataflow() as scope:
            scope.to_stream([1]).exchange(lambda x: x)

    monkeypatch.setattr(multiprocessing.context.ForkProcess, "start", start)
    with pytest.raises(BlockingIOError, match="no more processes"):
        timely.execute(program, processes=2)
    assert not started[0].is_alive()
    assert started[0].exitcode == 0  # it has found out, and was not killed


def test_runs_that_are_started_at_once_do_not_hold_each_others_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of the second are forked, if they may, while those of the first are: who of these is gone must be seen."""
    real, over = multiprocessing.context.ForkProcess.start, multiprocessing.get_context("fork").Event()
    first, begun = list[Any](), threading.Event()

    def start(self: Any) -> None:
        if not first:
            first.append(pool.submit(timely.execute, lambda worker: over.wait(600), processes=2))
            begun.wait(0.5)  # no longer: it need not begin yet
        elif threading.current_thread() is not threading.main_thread():
            real(self)
            begun.set()
            return
        real(self)

    def program(worker: timely.Worker) -> None:
        _, probe = exchanging(worker)
        if worker.index == 1:
            os._exit(3)
        worker.step_while(lambda: probe.less_than(1))

    monkeypatch.setattr(multiprocessing.context.ForkProcess, "start", start)
    with ThreadPoolExecutor() as pool:
        with pytest.raises(WorkerError, match="exit code 3"):
            timely.execute(program, processes=2)
        over.set()
        assert first[0].result() == [True, True]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_process_that_dies_is_noticed_while_a_run_that_it_started_goes_on() -> None:
    """The processes of the nested run had the connections of the outer one, too, which were open as long as they lived."""
    context = multiprocessing.get_context("fork")
    begun, over, late, ended = context.Barrier(3), context.Event(), context.Event(), context.Semaphore(0)

    def nested(worker: timely.Worker) -> None:
        begun.wait()
        if not over.wait(600):
            late.set()
        ended.release()

    def die() -> None:
        begun.wait()
        os._exit(3)

    def program(worker: timely.Worker) -> None:
        _, probe = exchanging(worker)
        if worker.index == 1:
            threading.Thread(target=die).start()
            timely.execute(nested, processes=2)
        worker.step_while(lambda: probe.less_than(1))

    with pytest.raises(WorkerError, match=r"process 1 \(workers 1 to 1\) ended with exit code 3"):
        timely.execute(program, processes=2)
    assert not late.is_set()
    over.set()
    for _ in range(2):
        assert ended.acquire(timeout=600)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_what_a_program_forks_itself_does_not_hide_that_its_process_is_gone() -> None:
    context = multiprocessing.get_context("fork")
    over, late = context.Event(), context.Event()

    def program(worker: timely.Worker) -> None:
        _, probe = exchanging(worker)
        if worker.index == 1:
            if os.fork():
                os._exit(4)
            if not over.wait(600):
                late.set()
            os._exit(0)
        worker.step_while(lambda: probe.less_than(1))

    with pytest.raises(WorkerError, match="exit code 4"):
        timely.execute(program, processes=2)
    assert not late.is_set()
    over.set()


def test_processes_do_not_look_for_garbage_among_what_the_parent_had() -> None:
    mine = [[number] for number in range(1000)]
    before = gc.get_freeze_count()

    def program(worker: timely.Worker) -> tuple[int, bool]:
        gc.collect()
        alive = {id(item) for item in gc.get_objects()}  # which does not name what is set aside
        return gc.get_freeze_count(), any(id(item) in alive for item in mine)

    for aside, seen in timely.execute(program, processes=2):
        assert aside > len(mine)
        assert not seen
    assert gc.get_freeze_count() == before
