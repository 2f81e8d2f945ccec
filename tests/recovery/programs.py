"""A program with state of every kind, that says what it has committed, and what it must say without any fault."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import timely
from timely.dataflow import Capability, OperatorInfo, route
from timely.errors import CheckpointError
from timely.recovery import Recovery
from timely.worker import Worker

Event = Callable[[str], None]
"""Called with what a worker is about to do, so that it can be stopped there."""


def nothing(event: str) -> None:
    """Go on."""


def records(epoch: int) -> list[tuple[str, int]]:
    """What comes in an epoch, on all workers together: words, and by how much to count them."""
    return [(f"word{(7 * epoch + 3 * i) % 11}", epoch + i) for i in range(6)]


def delayed_sums(logged: bool, event: Event = nothing) -> Callable[..., Any]:
    """Return the constructor of an operator that sends each key's running sum, two epochs after what it was brought up to date
    by.

    Its state is the sums, and what it is still to send, for which it holds capabilities.
    """

    def constructor(capability: Capability[int], info: OperatorInfo) -> Callable[..., object]:
        sums: dict[str, int] = {}
        due: dict[int, tuple[Capability[int], dict[str, int]]] = {}
        waiting: dict[int, tuple[Capability[int], list[tuple[str, int]]]] = {}  # of times that are not complete: never kept here

        def bring(item: tuple[str, int, dict[int, int]]) -> None:
            key, total, times = item
            sums[key] = total
            for time, value in times.items():
                if time not in due:
                    due[time] = capability.delayed(time), {}
                due[time][1][key] = value

        def item(key: str) -> tuple[str, int, dict[int, int]]:
            return key, sums[key], {time: values[key] for time, (_, values) in due.items() if key in values}

        def load(items: Any) -> None:
            for one in items:
                for time in list(due):
                    due[time][1].pop(one[0], None)  # what is loaded later is newer
                bring(one)

        log = info.register_state(lambda: [(route(key), item(key)) for key in sums], load, logged=logged)
        capability.drop()

        def logic(input: Any, output: Any) -> None:
            event("logic")
            touched = set()
            for cap, batch in input:
                if cap.time not in waiting:
                    waiting[cap.time] = cap.retain(), []
                waiting[cap.time][1].extend(batch)
            for time in sorted(waiting):
                if not input.frontier.less_equal(time):
                    held, pairs = waiting.pop(time)
                    due[time + 2] = held.delayed(time + 2), {}
                    held.drop()
                    for key, value in pairs:
                        sums[key] = sums.get(key, 0) + value
                        due[time + 2][1][key] = sums[key]
                        touched.add(key)
            for time in sorted(due):
                if not input.frontier.less_equal(time):
                    held, values = due.pop(time)
                    touched |= values.keys()
                    output.session(held).give_many((time, *pair) for pair in values.items())
                    held.drop()
            for key in sorted(touched):
                log.append(route(key), item(key))

        return logic

    return constructor


def restless(again: str, ended: Sequence[Any] = ()) -> Callable[..., Any]:
    """Return the constructor of an operator that passes all on, and never rests until ``ended`` has something."""

    def constructor(capability: Any, info: OperatorInfo) -> Callable[..., object]:
        info.declare_stateless()
        capability.drop()

        def logic(input: Any, output: Any) -> bool:
            for cap, batch in input:
                output.session(cap).give_batch(batch)
            if not ended and again == "by its activator":
                info.activator.activate()
            if not ended and again == "by the clock":
                info.activator.activate_after(0.0)
            return again == "by itself" and not ended

        return logic

    return constructor


def tally(seen: list[int]) -> Callable[..., Any]:
    """Return the constructor of an operator that counts what comes to this worker: state of its own, that can be added up."""

    def constructor(info: OperatorInfo) -> Callable[..., object]:
        def load(items: Any) -> None:
            seen[0] += sum(items)

        def rescale(items: Any) -> None:
            everything = sum(sum(one) for one in items)
            seen[0] += everything if info.worker == 0 else 0

        info.register_state(lambda: [(None, seen[0])], load, rescale=rescale)

        def logic(input: Any) -> None:
            for _, batch in input:
                seen[0] += len(batch)

        return logic

    return constructor


def archive(records: list[Any]) -> Callable[..., Any]:
    """Return the constructor of an operator that keeps all that ever came: a log that is never saved anew."""

    def constructor(info: OperatorInfo) -> Callable[..., object]:
        def rescale(items: Any) -> None:
            for one in list(items)[info.worker :: info.peers]:
                records.extend(one)

        log = info.register_state(None, records.extend, rescale=rescale, logged=True)

        def logic(input: Any) -> None:
            for _, batch in input:
                for record in batch:
                    log.append(None, record)
                    records.append(record)

        return logic

    return constructor


def build(worker: Worker, event: Event = nothing, archived: bool = True) -> tuple[Any, Any, list[int], list[Any]]:
    """Return the input of the dataflow, what captures its sums, how much was tallied, and what was archived."""
    seen: list[int] = [0]
    collected: list[Any] = []
    with worker.dataflow(int, name="sums") as scope:
        handle, stream = scope.new_input()
        pact = timely.Exchange(lambda record: record[0])
        sums = stream.unary_frontier(pact, "plain", delayed_sums(False, event))
        plain = sums.capture()
        logged = stream.unary_frontier(pact, "logged", delayed_sums(True)).map(lambda x: ("logged", *x)).capture()
        stream.exchange(lambda record: record[1]).sink(timely.Pipeline, "tally", tally(seen))
        if archived:
            sums.sink(timely.Pipeline, "archive", archive(collected))
    return handle, (plain, logged), seen, collected


class Stopped(Exception):
    """A run was stopped, as a fault would stop it."""


def program(
    worker: Worker,
    where: Any,
    epochs: int,
    *,
    every: int = 1,
    stop: int | None = None,
    event: Event = nothing,
    tolerant: bool = False,
    archived: bool = True,
) -> tuple[int, list[Any], int]:
    """Count for so many epochs, or until a checkpoint at ``stop``; return where it began, what has come out, in this run and in
    those that it goes on from, and how many records were tallied in all of them. A ``tolerant`` one goes on where a checkpoint
    cannot be taken.
    """
    with Recovery(worker, where) as recovery:
        handle, captures, seen, result = build(worker, event, archived)
        start = recovery.time or 0
        came = [record for note in recovery.notes for record in note] if worker.index == 0 else []

        def gather() -> list[Any]:
            """What has come out by this worker and by those before it."""
            came.extend(record for capture in captures for _, batch in capture.drain() for record in batch)
            return list(came)

        handle.advance_to(start)
        for epoch in range(start, epochs):
            event("epoch")
            for i, record in enumerate(records(epoch)):
                if i % worker.peers == worker.index:
                    handle.send(record)
            handle.advance_to(epoch + 1)
            if (epoch + 1) % every == 0:
                with contextlib.suppress(*([CheckpointError] if tolerant else [])):
                    recovery.checkpoint(epoch + 1, notes=gather)
                if epoch + 1 == stop:
                    raise Stopped
        handle.close()
        worker.run()
        return start, gather() + [("archived", *record) for record in result], seen[0]


def expected(epochs: int, archived: bool = True) -> Counter[Any]:
    """What must come out in all."""
    sums: dict[str, int] = {}
    counts: Counter[Any] = Counter()
    for epoch in range(epochs):
        now = {}
        for key, value in records(epoch):
            sums[key] = sums.get(key, 0) + value
            now[key] = sums[key]
        for key, value in now.items():
            counts[epoch + 2, key, value] += 1
            counts["logged", epoch + 2, key, value] += 1
            if archived:
                counts["archived", epoch + 2, key, value] += 1
    return counts
