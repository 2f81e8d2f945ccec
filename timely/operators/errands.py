"""Errands: what an operator has awaited for it on another thread, as its own may not wait.

Errands run in an asyncio loop on one thread beside each worker's, which starts when the first operator needs it and ends with the
last. The two threads share a queue of results and a bell that wakes the worker, nothing else. The invariants: results are put
and errands run on the loop's thread, results are taken on the worker's; and no errand runs any more once ``end()`` has returned,
which happens when the dataflow is complete, is dropped, or its worker is closed. A caller holds the capabilities that the results
are to be sent with, and says with ``expect`` whether any are still to come.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Generic, TypeVar

import attrs

from timely.dataflow import OperatorInfo

R = TypeVar("R")


class LoopThread:
    """An asyncio loop on a thread of its own, shared by those who take it, until the last of them gives it back."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._users = 0
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="timely asyncio", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether it runs; a process that was forked has none of its parent's threads."""
        return self._thread.is_alive()

    def take(self) -> None:
        """Use it: start it, if this is the first."""
        self._users += 1
        if self._users == 1:
            self._thread.start()
            self._started.wait()

    def give_back(self) -> None:
        """Use it no more: end it, if this is the last."""
        self._users -= 1
        if self._users == 0:
            self.loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._started.set()
        await self._stop.wait()


_threads = threading.local()


def loop_beside() -> LoopThread:
    """Return the loop beside the worker that runs on this thread, taken once more."""
    found: LoopThread | None = getattr(_threads, "beside", None)
    if found is None or not found.alive:
        found = _threads.beside = LoopThread()
    found.take()
    return found


@attrs.frozen
class _Failure:
    """What was raised on the other thread."""

    error: BaseException


class Errands(Generic[R]):
    """What one operator has others await for it, and what has come of that. A worker's thread starts errands and takes results;
    errands run on the loop's, and put results.
    """

    def __init__(self, info: OperatorInfo) -> None:
        self._path = info.path
        self._bell = info.activator.bell()
        self._results: deque[R | _Failure] = deque()
        self._beside: LoopThread | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = False
        info.at_end(self.end)

    def start(self, errand: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        """Begin to await ``errand(*arguments)``."""
        if self._beside is None:
            self._beside = loop_beside()
        self.call(self._begin, errand, arguments)

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

    def take(self) -> Iterator[R]:
        """Take the results that have come so far; raise what was raised by an errand."""
        while self._results:
            result = self._results.popleft()
            if isinstance(result, _Failure):
                raise result.error
            yield result

    def end(self) -> None:
        """Cancel what is still awaited, and return when that is over: then nothing of it runs any more."""
        beside, self._beside = self._beside, None
        if beside is not None:
            asyncio.run_coroutine_threadsafe(self._cancel(), beside.loop).result()
            beside.give_back()

    # -- on the loop's thread ------------------------------------------------------------------------------------------

    def put(self, result: R | _Failure) -> None:
        """Hand a result over, and wake the worker."""
        self._results.append(result)
        self._bell.ring()

    def _begin(self, errand: Callable[..., Coroutine[Any, Any, None]], arguments: tuple[Any, ...]) -> None:
        task = asyncio.get_running_loop().create_task(self._watch(errand, arguments))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self, errand: Callable[..., Coroutine[Any, Any, None]], arguments: tuple[Any, ...]) -> None:
        """See an errand through. Whatever it raises is the worker's to raise, an interruption of the program included; and what
        it raises when it is cancelled at the end, the loop's to log: nobody is left who could.
        """
        try:
            await errand(*arguments)
        except GeneratorExit as error:
            if self._ended:  # closed with its loop, and not raised by the errand
                raise
            self.put(_Failure(error))
        except asyncio.CancelledError:  # at the end, when nobody takes results any more; or else by somebody else, and too early
            self.put(_Failure(RuntimeError("what was awaited was cancelled")))
        except BaseException as error:
            if self._ended:
                trouble = {"message": f"cancelled at the end of operator {self._path}", "exception": error}
                asyncio.get_running_loop().call_exception_handler(trouble)
            else:
                self.put(_Failure(error))

    async def _cancel(self) -> None:
        self._ended = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
