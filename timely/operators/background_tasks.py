"""Background tasks: coroutines that an operator has awaited in an asyncio loop on a thread beside its worker's.

The two threads share a queue of results and a ``SyncActivator``, nothing else. No task runs once ``end()`` has returned.
Nothing on the loop's thread refers to the worker, so that one that is garbage collected has its tasks cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import socket
import threading
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Generic, TypeVar

import attrs

from timely.dataflow import OperatorInfo
from timely.errors import ConfigurationError, file_error_text

R = TypeVar("R")


class LoopThread:
    """An asyncio loop on its own thread, which ends when nothing refers to this any more."""

    def __init__(self) -> None:
        with selectors.DefaultSelector():  # a loop without them raises again when it is deleted
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


def _call_unless_closed(loop: asyncio.AbstractEventLoop, action: Callable[[], object]) -> None:
    """Schedule ``action()`` on a loop, from a finalizer on any thread. The loop may already have ended."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(action)


def _run(loop: asyncio.AbstractEventLoop, over: asyncio.Event) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(over.wait())


_threads = threading.local()


def loop_beside() -> LoopThread:
    """Return the loop beside the worker of this thread, started when the first operator needs it."""
    known: weakref.ref[LoopThread] | None = getattr(_threads, "beside", None)
    beside = None if known is None else known()
    if beside is None or not beside.thread.is_alive():  # a process that was forked has none of its parent's threads
        beside = LoopThread()
        _threads.beside = weakref.ref(beside)
    return beside


@attrs.frozen
class _Failure:
    """An exception of a task."""

    error: BaseException


class BackgroundTasks(Generic[R]):
    """The tasks of one operator, on the worker's thread. The operator holds the capabilities that results are sent with."""

    def __init__(self, info: OperatorInfo) -> None:
        self._path = info.path
        self._activator = info.activator.new_sync_activator()
        self._running: _TaskSet[R] = _TaskSet(self)
        self._loop: LoopThread | None = None
        self._abandoned: weakref.finalize[..., BackgroundTasks[R]] | None = None
        info.at_end(self.end)

    def start(self, task: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        """Begin to await ``task(put, *arguments)``, which calls ``put(result)``; neither may refer to the operator.

        ``ConfigurationError`` where the system allows no further thread or files.
        """
        if self._loop is None:
            try:
                self._loop = loop_beside()
            except (OSError, RuntimeError) as error:
                raise ConfigurationError(
                    f"operator {self._path} awaits on a thread of its own, which takes three open files and cannot be started:"
                    f" {file_error_text(error)}"
                ) from error
            self._abandoned = weakref.finalize(self, _call_unless_closed, self._loop.loop, self._running.cancel)
            self._abandoned.atexit = False
        self.call(self._running.begin, self._path, task, arguments)

    def room(self, size: int) -> asyncio.Semaphore:
        """Return a semaphore for a task to acquire before it puts a result, to be released with ``call`` when that was read."""
        return asyncio.Semaphore(size)

    def call(self, action: Callable[..., object], *arguments: Any) -> None:
        if self._loop is not None:
            self._loop.loop.call_soon_threadsafe(action, *arguments)

    def expect(self, anything: bool) -> None:
        self._activator.expected = anything

    def activate(self) -> None:
        self._activator.activate()

    def results(self) -> Iterator[R]:
        """Remove and yield the results so far; raise what a task has raised."""
        results = self._running.results
        while results:
            result = results.popleft()
            if isinstance(result, _Failure):
                raise result.error
            yield result

    def end(self) -> None:
        """Cancel all tasks, and return when none of them runs any more."""
        beside, self._loop = self._loop, None
        if beside is None:
            return
        if self._abandoned is not None:
            self._abandoned.detach()
        asyncio.run_coroutine_threadsafe(self._running.end(), beside.loop).result()
        thread, held = beside.thread, weakref.ref(beside)
        del beside
        if held() is None:
            thread.join()


class _TaskSet(Generic[R]):
    """The tasks of one operator, on the loop's thread."""

    def __init__(self, owner: BackgroundTasks[R]) -> None:
        self.results: deque[R | _Failure] = deque()
        self._owner = weakref.ref(owner)
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = False

    def begin(self, path: str, task: Callable[..., Coroutine[Any, Any, None]], arguments: tuple[Any, ...]) -> None:
        running = asyncio.get_running_loop().create_task(self._run(path, task, arguments))
        self._tasks.add(running)
        running.add_done_callback(self._tasks.discard)

    def cancel(self) -> None:
        self._ended = True
        for task in self._tasks:
            task.cancel()

    async def end(self) -> None:
        self.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _put(self, result: R | _Failure) -> None:
        self.results.append(result)
        owner = self._owner()
        if owner is not None:
            owner.activate()

    async def _run(self, path: str, task: Callable[..., Coroutine[Any, Any, None]], arguments: tuple[Any, ...]) -> None:
        """Run a task. The worker raises what it raises, an interruption of the program included.

        After ``cancel`` no operator is left to raise it, so the loop logs it.
        """
        try:
            await task(self._put, *arguments)
        except GeneratorExit as error:
            if self._ended:  # closed with its loop, and not raised by the task
                raise
            self._put(_Failure(error))
        except asyncio.CancelledError:  # by cancel, when no one reads results; or by other code, too early
            self._put(_Failure(RuntimeError("what was awaited was cancelled")))
        except BaseException as error:
            if self._ended:
                trouble = {"message": f"cancelled at the end of operator {path}", "exception": error}
                asyncio.get_running_loop().call_exception_handler(trouble)
            else:
                self._put(_Failure(error))
