"""What the library changes of Python's collector: that it is as before afterwards, and what is searched before a stall.

What looks at all objects runs in a process that has few of them: here pytest has 400,000, and each collection takes 0.4 s.

White box: the locks and the search are called by themselves, since a program sees of them only that it does not stall.
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
from timely.worker import Worker, gc_control

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


needs_generations = pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="the collector of free-threaded Python has one generation"
)


class Node:
    """Refers to itself, so that only the collector ever finds out that nobody else does."""

    def __init__(self, alive: weakref.WeakSet[Node]) -> None:
        self.myself = self
        alive.add(self)


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
def test_before_a_stall_what_was_frozen_with_what_the_program_froze_is_searched_too() -> None:
    gc.freeze()
    held: list[Any] = []
    worker, probe = stalls_on(held)
    with gc_control.unfrozen():  # to explain what several workers hold, all is visited
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
def test_the_last_of_several_that_pause_it_lets_python_collect_again() -> None:
    """A program that builds one dataflow while another thread builds one."""
    gc.enable()
    building, entered = gc_control.collector_paused(), gc_control.collector_paused(stays=False)
    with contextlib.ExitStack() as stack:
        with building:
            stack.enter_context(entered)
            with ThreadPoolExecutor() as pool:
                assert not pool.submit(gc.isenabled).result()
        assert not gc.isenabled(), "the other has been left alone with it"
    assert gc.isenabled()


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
    gc.freeze()
    assert thing not in gc.get_referrers(thing[0])
    with gc_control.unfrozen():
        assert thing in gc.get_referrers(thing[0])
        with ThreadPoolExecutor() as pool:
            assert not pool.submit(is_free).result()  # nobody else is to change what is set aside meanwhile
    assert thing not in gc.get_referrers(thing[0])


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
