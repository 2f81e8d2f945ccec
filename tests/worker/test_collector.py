"""Python's collector while a worker has it: when it looks, that memory stays bounded, and that it is as before afterwards.

What looks at all objects runs in a process that has few of them: here pytest has 400,000, and each collection takes 0.4 s.

White box: the limits of the collector are lowered, so that little garbage reaches them.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import multiprocessing
import sysconfig
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any, ParamSpec

import pytest

import timely
from timely.worker import GarbageControl, Worker, gc_control

P = ParamSpec("P")


@functools.cache
def small_process() -> ProcessPoolExecutor:
    """The process that has few objects: it has loaded this file, and what the file imports."""
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))


def run_here(name: str, arguments: dict[str, Any]) -> None:
    """Run a test of this file, and leave Python's own settings as they were, whatever it does."""
    enabled, limits = gc.isenabled(), gc.get_threshold()
    try:
        globals()[name].__wrapped__(**arguments)
    finally:
        gc.unfreeze()
        gc.set_threshold(*limits)
        (gc.enable if enabled else gc.disable)()


def apart(test: Callable[P, None]) -> Callable[P, None]:
    """Let a test run in the small process."""

    @functools.wraps(test)
    def run(*arguments: P.args, **named: P.kwargs) -> None:
        assert not arguments  # pytest names them all
        small_process().submit(run_here, test.__name__, named).result()

    return run


@pytest.fixture(scope="module", autouse=True)
def ended_process() -> Iterator[None]:
    """End the small process after the last test of the file."""
    yield
    small_process().shutdown()
    small_process.cache_clear()


def loop(worker: Worker, rounds: int, work: Callable[[int], object]) -> None:
    """Build a loop that calls ``work`` in each of so many rounds."""
    with worker.dataflow() as scope:
        handle, again = scope.feedback()

        def logic(input: Any, output: Any, notificator: timely.Notificator[int]) -> None:
            for capability, _ in notificator:
                work(capability.time)
                if capability.time < rounds:
                    capability.downgrade(capability.time + 1)
                    notificator.notify_at(capability)

        again.unary_notify(timely.Pipeline, "loop", [0], logic).connect_loop(handle)


needs_generations = pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="the collector of free-threaded Python has one generation"
)


class Node:
    """Refers to itself, so that only the collector ever finds out that nobody else does."""

    def __init__(self, alive: weakref.WeakSet[Node]) -> None:
        self.myself = self
        alive.add(self)


@contextlib.contextmanager
def lowered(**limits: float) -> Iterator[None]:
    """Give the control limits that little garbage reaches."""
    with pytest.MonkeyPatch.context() as patch:
        for name, limit in {"LEAST": 0, **limits}.items():
            patch.setattr(gc_control, f"_{name}", limit)
        yield


@pytest.mark.parametrize("generations", [pytest.param(True, marks=needs_generations), False], ids=["generations", "one"])
@pytest.mark.parametrize("size", [0, 500], ids=["at once", "after a while"])
@apart
def test_garbage_in_cycles_is_found_while_a_worker_runs(size: int, generations: bool) -> None:
    part = 5000 / len(gc.get_objects())  # looks at everything once there are about 5000 more
    gc.set_threshold(50, 2, 2)
    alive: weakref.WeakSet[Node] = weakref.WeakSet()
    window: list[Node] = []
    most = [0]

    def work(time: int) -> None:
        window.append(Node(alive))
        del window[: -size or None]
        most[0] = max(most[0], len(alive))

    worker = Worker()
    loop(worker, 20_000, work)
    with lowered(GENERATIONS=generations, BUSY=part), GarbageControl(worker):
        worker.run()
    assert most[0] < 10_000 < 20_000  # of which so many were made


@apart
def test_python_does_not_run_the_collector_by_itself_meanwhile() -> None:
    inside: list[bool] = []
    runs: list[bool] = []
    worker = Worker()
    gc.set_threshold(20, 2, 2)

    def work(time: int) -> None:
        inside.append(True)
        held.append([[time] for _ in range(100)])
        inside.pop()

    held: list[Any] = []
    loop(worker, 60, work)
    note = lambda phase, info: runs.append(bool(inside))  # noqa: E731
    gc.callbacks.append(note)
    try:
        with lowered(BUSY=0.0), GarbageControl(worker):
            worker.run()
    finally:
        gc.callbacks.remove(note)
    assert len(runs) > 10
    assert not any(runs)


@apart
def test_garbage_is_found_also_while_another_thread_collects() -> None:
    """Python's own call returns at once then, with nothing done."""
    collecting, over = threading.Event(), threading.Event()

    class Slow:
        def __init__(self) -> None:
            self.myself = self

        def __del__(self) -> None:
            collecting.set()
            over.wait(600)

    alive: weakref.WeakSet[Node] = weakref.WeakSet()
    gc.disable()
    Slow()
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(gc.collect)
        collecting.wait(600)
        Node(alive)
        result = pool.submit(gc_control.find_garbage, gc_control.times_frozen())
        time.sleep(0.01)
        assert (len(alive), result.done()) == (1, False)
        over.set()
        slow.result()
        result.result()
        assert len(alive) == 0


def stalls_on(held: list[Any]) -> tuple[Worker, timely.ProbeHandle[int]]:
    """Return a worker that nothing can move before a capability is dropped, which a cycle in ``held`` has; and a probe."""

    def constructor(capability: timely.Capability[int], info: timely.dataflow.OperatorInfo) -> Callable[[Any, Any], None]:
        held.append([capability, held])
        return lambda input, output: None

    worker = Worker()
    with worker.dataflow(int) as scope:
        probe = scope.empty().unary(timely.Pipeline, "holds", constructor).probe()
    with pytest.raises(timely.StalledError, match="holds"):
        worker.run()
    return worker, probe


@apart
def test_before_a_stall_what_a_control_froze_is_searched_too() -> None:
    held: list[Any] = []  # older than the worker
    with GarbageControl(Worker()):
        worker, probe = stalls_on(held)
        del held
        worker.run()
    assert probe.done()


@pytest.mark.parametrize("explained", [False, True])
@apart
def test_before_a_stall_what_was_frozen_with_what_the_program_froze_is_searched_too(explained: bool) -> None:
    gc.freeze()
    held: list[Any] = []
    worker, probe = stalls_on(held)
    with gc_control.unfrozen() if explained else GarbageControl(worker):  # to explain what several workers hold, all is visited
        pass
    del held
    worker.run()
    assert probe.done()


@apart
def test_before_a_stall_what_the_program_froze_is_left_frozen() -> None:
    """With millions of objects a search of them takes seconds, and where a process was forked it copies their pages."""
    alive: weakref.WeakSet[Node] = weakref.WeakSet()
    gc.disable()
    Node(alive)
    gc.freeze()
    Node(alive)
    worker, _ = stalls_on([])
    assert len(alive) == 1
    gc.unfreeze()
    gc.collect()
    assert len(alive) == 0
    assert worker.dataflows


@apart
def test_what_is_garbage_already_is_not_set_aside() -> None:
    alive: weakref.WeakSet[Node] = weakref.WeakSet()
    gc.disable()
    Node(alive)
    assert len(alive) == 1
    with GarbageControl(Worker()):
        assert len(alive) == 0


@apart
def test_the_last_of_several_that_pause_it_lets_python_collect_again() -> None:
    """A program that builds one dataflow while another thread builds one, and enters a control."""
    gc.enable()
    building, entered = gc_control.collector_paused(), GarbageControl(Worker())
    with contextlib.ExitStack() as stack:
        with building:
            stack.enter_context(entered)
            with ThreadPoolExecutor() as pool:
                assert not pool.submit(gc.isenabled).result()
        assert not gc.isenabled(), "the control has been left alone with it"
    assert gc.isenabled()


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("frozen", [True, False])
@apart
def test_all_is_as_before_when_the_last_one_is_left(enabled: bool, frozen: bool) -> None:
    (gc.enable if enabled else gc.disable)()
    gc.unfreeze()
    if frozen:
        gc.freeze()
    one, two = Worker(), Worker()
    with GarbageControl(one):
        with pytest.raises(KeyError), GarbageControl(two):
            raise KeyError("also where it is left by an error")
        assert (gc.isenabled(), gc.get_freeze_count() > 0) == (False, frozen or gc_control._GENERATIONS)
    assert (gc.isenabled(), gc.get_freeze_count() > 0) == (enabled, frozen)
    assert (one.gc_control, two.gc_control) == (None, None)


@apart
def test_a_program_that_was_never_resumed_leaves_when_it_is_collected() -> None:
    def program(worker: Worker, holders: list[Any]) -> Iterator[None]:
        with GarbageControl(worker):
            yield

    worker = Worker()
    with GarbageControl(Worker()):
        holders: list[Any] = []
        holders.append(program(worker, holders))
        next(holders[0])
        assert worker.gc_control is not None
        del holders  # only the program refers to it, and it to the program
        gc_control._SHARED.collect_all(1.0)
        assert [worker.gc_control, gc.isenabled()] == [None, False]
    until = time.monotonic() + 600  # workers that another test has left may take a moment to end
    while not gc.isenabled():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("fails", [False, True])
@apart
def test_while_a_dataflow_is_built_the_collector_is_paused_and_then_as_before(enabled: bool, fails: bool) -> None:
    (gc.enable if enabled else gc.disable)()
    paused = []
    worker = Worker()
    with contextlib.suppress(KeyError), worker.dataflow() as scope:
        scope.empty()
        paused.append(not gc.isenabled())
        if fails:
            raise KeyError
    assert (paused, gc.isenabled()) == ([True], enabled)


def is_free() -> bool:
    """Whether the calling thread could change what is set aside."""
    free = gc_control._SHARED.lock.acquire(blocking=False)
    if free:
        gc_control._SHARED.lock.release()
    return free


@apart
def test_a_process_that_was_forked_while_another_thread_looked_may_look_too() -> None:
    inside, over = threading.Event(), threading.Event()

    def look() -> None:
        with gc_control.unfrozen():
            inside.set()
            over.wait()

    def program(worker: timely.Worker) -> bool:
        looking = threading.Thread(target=gc_control.find_garbage, args=[0], daemon=True)
        looking.start()
        looking.join(600)
        return looking.is_alive()

    with ThreadPoolExecutor() as pool:
        pool.submit(look)
        inside.wait()
        stuck = timely.execute(program, processes=2)
        over.set()
    assert stuck == [False, False]


@needs_generations
@apart
def test_what_was_set_aside_is_in_sight_and_then_set_aside_again() -> None:
    thing = [object()]
    with GarbageControl(Worker()):
        assert thing not in gc.get_referrers(thing[0])
        with gc_control.unfrozen():
            assert thing in gc.get_referrers(thing[0])
            with ThreadPoolExecutor() as pool:
                assert not pool.submit(is_free).result()  # nobody else is to change what is set aside meanwhile
        assert thing not in gc.get_referrers(thing[0])
    assert thing in gc.get_referrers(thing[0])


@apart
def test_workers_of_runs_that_are_over_are_freed() -> None:
    def workers() -> int:
        return sum(type(each) is Worker for each in gc.get_objects())

    gc.collect()
    before = workers()
    for _ in range(3):
        assert timely.example(lambda scope: scope.to_stream([1]).map(str)) == [(0, ["1"])]
    gc.collect()
    assert workers() <= before
