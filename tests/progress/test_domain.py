"""What is known of a type of times is one object, whoever asks first."""

from __future__ import annotations

import threading
from typing import Any, Self

from timely.progress import Step, time_domain


class Slow(int):
    """Times of which the least one is found only when two threads have asked for it."""

    asked = threading.Barrier(2)

    @classmethod
    def minimum(cls) -> Self:
        cls.asked.wait()
        return cls(0)

    @classmethod
    def identity(cls) -> Step:
        return Step(0)


def test_threads_that_ask_at_once_get_one_domain() -> None:
    collected: list[Any] = []
    threads = [threading.Thread(target=lambda: collected.append(time_domain(Slow))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(collected) == 2
    assert collected[0] is collected[1] is time_domain(Slow)
