"""Attempts of a stage for tests of the rendezvous: who joins, and what they send.

White box: the workers of an attempt are played by threads, without Spark.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs

from timely.spark.registration import Registration
from timely.spark.rendezvous import Rendezvous, RunEntry
from timely.spark.stage_messages import Message
from timely.worker.mesh import Address


def register(
    server: Rendezvous, run: RunEntry, index: int, generation: int, stage: int = 0, timeout: float = 10.0
) -> Registration:
    return Registration(server.invitation(run), index=index, generation=generation, stage=stage, timeout=timeout)


def address(index: int, generation: int) -> Address:
    return ("127.0.0.1", 1000 * generation + index)


def peers_of(registration: Registration, index: int, generation: int) -> dict[int, Address]:
    return registration.peers(address(index, generation))


def complete(server: Rendezvous, run: RunEntry, pool: ThreadPoolExecutor, generation: int, stage: int = 0) -> list[Registration]:
    joined = [register(server, run, index, generation, stage) for index in range(run.workers)]
    message = pool.map(lambda index: peers_of(joined[index], index, generation), range(run.workers))
    expected = {index: address(index, generation) for index in range(run.workers)}
    assert all(peers == expected for peers in message)
    return joined


def leave(*registrations: Registration) -> None:
    for registration in registrations:
        registration.__exit__()


@attrs.frozen
class Note(Message):
    """Any text or number."""

    content: Any = None


@attrs.frozen
class Other(Message):
    """Nothing, of another kind."""
