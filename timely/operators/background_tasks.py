"""Errands: what an operator has awaited for it on another thread, as its own may not wait.

Errands run in an asyncio loop on one thread beside each worker's, which starts when the first operator needs it and ends with the
last. The two threads share a queue of results and a bell that wakes the worker, nothing else. The invariants: results are put
and errands run on the loop's thread, results are taken on the worker's; and no errand runs any more once ``end()`` has returned,
which happens when the dataflow is complete, is dropped, or its worker is closed. Nothing on the loop's thread refers to the
worker, so that the errands of one that is let go of unclosed are cancelled too. A caller holds the capabilities that the results
are to be sent with, and says with ``expect`` whether any are still to come.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
import threading
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

import attrs

from timely.dataflow import OperatorInfo
from timely.errors import ConfigurationError, file_error_text

R = TypeVar("R")


class LoopThread:
    """An asyncio loop on a thread of its own, which ends when nobody has this any more."""

    def __init__(self) -> None:
        with selectors.DefaultSelector():  # what a loop takes, which raises once more, when it is deleted, if it does not get it
            for end in socket.socketpair():
                end.close()
        self.loop = asyncio.new_event_loop()
        over = asyncio.Event()
        self.thread = threading.Thread(target=_run, args=(self.loop, over), name="timely asyncio", daemon=True)
        try:
            self.thread.start()
        except RuntimeError:
            self.loop.close()
            raise
        weakref.finalize(self, self.loop.call_soon_threadsafe, over.set).atexit = False


def _run(loop: asyncio.AbstractEventLoop, over: asyncio.Event) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(over.wait())


_threads = threading.local()


def loop_beside() -> LoopThread:
    """Return the loop beside the worker that runs on this thread."""
    known: weakref.ref[LoopThread] | None = getattr(_threads, "beside", None)
    found = None if known is None else known()
    if found is None or not found.thread.is_alive():  # a process that was forked has none of its parent's threads
        found = LoopThread()
        _threads.beside = weakref.ref(found)
    return found


@attrs.frozen
class _Failure:
    """What was raised on the other thread."""

    error: BaseException


class Errands(Generic[R]):
    """What one operator has others await for it, and what has come of that, on the worker's thread."""

    def __init__(self, info: OperatorInfo) -> None:
        self._path = info.path
        self._bell = info.activator.bell()
        self._underway: _Underway[R] = _Underway(self)
        self._beside: LoopThread | None = None
        self._abandoned: weakref.finalize[[], Errands[R]] | None = None
        info.at_end(self.end)

    def start(self, errand: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        """Begin to await ``errand(put, *arguments)``, which hands over results with ``put(result)``.

        Neither of these may refer to the operator. ``ConfigurationError`` where the system allows no loop beside the worker.
        """
        if self._beside is None:
            try:
                self._beside = loop_beside()
            except (OSError, RuntimeError) as error:
                raise ConfigurationError(
                    f"operator {self._path} awaits on a thread of its own, which takes three open files and cannot be started:"
                    f" {file_error_text(error)}"
                ) from error
            cancel = partial(self._beside.loop.call_soon_threadsafe, self._underway.cancel)  # the finalizer may run on any thread
            self._abandoned = weakref.finalize(self, cancel)
            self._abandoned.atexit = False
        self.call(self._underway.begin, self._path, errand, arguments)

    def room(self, size: int) -> asyncio.Semaphore:
        """Return what an errand acquires before it puts a result, and what is released with ``call`` when that was taken."""
        return asyncio.Semaphore(size)

    def call(self, action: Callable[..., object], *arguments: Any) -> None:
        """Have ``action(*arguments)`` called on the loop's thread."""
        if self._beside is not None:
            self._beside.loop.call_soon_threadsafe(action, *arguments)

    def expect(self, anything: bool) -> None:
        """Say whether there are results still to come, so that the worker waits for them."""
        self._bell.expected = anything

    def ring(self) -> None:
        """Wake the worker, from any thread: there are results to take."""
        self._bell.ring()

    def take(self) -> Iterator[R]:
        """Take the results that have come so far; raise what was raised by an errand."""
        results = self._underway.results
        while results:
            result = results.popleft()
            if isinstance(result, _Failure):
                raise result.error
            yield result

    def end(self) -> None:
        """Cancel what is still awaited, and return when that is over: then nothing of it runs any more."""
        beside, self._beside = self._beside, None
        if beside is None:
            return
        if self._abandoned is not None:
            self._abandoned.detach()
        asyncio.run_coroutine_threadsafe(self._underway.end(), beside.loop).result()
        thread, held = beside.thread, weakref.ref(beside)
        del beside
        if held() is None:
            thread.join()


class _Underway(Generic[R]):
    """The errands of one operator, on the loop's thread."""

    def __init__(self, errands: Errands[R]) -> None:
        self.results: deque[R | _Failure] = deque()
        self._errands = weakref.ref(errands)
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = False

    def begin(self, path: str, errand: Callable[..., Coroutine[Any, Any, None]], arguments: tuple[Any, ...]) -> None:
        """Begin to await an errand of the operator at ``path``."""
        task = asyncio.get_running_loop().create_task(self._watch(path, errand, arguments))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel(self) -> None:
        """Cancel them all: nobody takes results any more."""
        self._ended = True
        for task in self._tasks:
            task.cancel()

    async def end(self) -> None:
        """Cancel them all, and return when that is over."""
        self.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _put(self, result: R | _Failure) -> None:
        """Hand a result over, and wake the worker."""
        self.results.append(result)
        errands = self._errands()
        if errands is not None:
            errands.ring()

    async def _watch(self, path: str, errand: Callable[..., Coroutine[Any, Any, None]], arguments: tuple[Any, ...]) -> None:
        """See an errand through. Whatever it raises is the worker's to raise, an interruption of the program included; and what
        it raises when it is cancelled at the end, the loop's to log: nobody is left who could.
        """
        try:
            await errand(self._put, *arguments)
        except GeneratorExit as error:
            if self._ended:  # closed with its loop, and not raised by the errand
                raise
            self._put(_Failure(error))
        except asyncio.CancelledError:  # at the end, when nobody takes results any more; or else by somebody else, and too early
            self._put(_Failure(RuntimeError("what was awaited was cancelled")))
        except BaseException as error:
            if self._ended:
                trouble = {"message": f"cancelled at the end of operator {path}", "exception": error}
                asyncio.get_running_loop().call_exception_handler(trouble)
            else:
                self._put(_Failure(error))
