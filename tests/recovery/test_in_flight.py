"""Runs that are cut anywhere, with messages in flight and in the middle of loops, go on as if nothing had been.

White box: where a worker is in a loop is a matter of steps, so the workers are stepped by hand, on a network of the tests.
"""

from __future__ import annotations

import itertools
import pickle
import random
import re
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import timely
from tests.recovery.cutting import EPOCHS, Build, Phase, Sends, feed, run, sends
from tests.recovery.test_operators_state import BUILDS, UNARY, _batches, edges
from tests.support.memory_registry import pause
from timely import differential as dd
from timely.errors import CheckpointError, StateError
from timely.graphs import pagerank, rank
from timely.graphs.graphframes.pregel.peeling import _Peeling, k_core
from timely.graphs.stages.repartitioned_state import register_parts
from timely.memory import MemoryBudget

Edges = list[list[tuple[int, list[tuple[int, int]]]]]
steps = st.lists(st.integers(1, 14), min_size=1, max_size=4)


def cut_run(build: Build, sent: Sends, after: Sequence[int], workers: int, *, compact: bool, seed: int) -> Counter[Any]:
    """What comes out of a run that is cut each time that some worker has taken so many steps more; all epochs are sent."""
    counts: Counter[Any] = Counter()
    start: list[Any] = []
    choose = random.Random(seed)
    for place, count in enumerate(after):
        phase = Phase(build, 1, workers, start)
        if place == 0:
            feed(phase, [sent], 0, EPOCHS)
        phase.advance_to(EPOCHS)
        for _ in range(count * workers):
            for pair in phase.network.waiting():
                phase.network.deliver(*pair, choose.randint(0, 4))
            choose.choice(phase.workers).step()
        pause(phase.workers, phase.network)
        start = [registry.snapshot(compact=compact, in_flight=True) for registry in phase.state_registries]
        counts += phase.outputs()
    last = Phase(build, 1, workers, start)
    last.advance_to(EPOCHS)
    last.end()
    return counts + last.outputs()


@pytest.mark.parametrize("name", UNARY)
@given(sent=sends, after=steps, workers=st.integers(1, 3), compact=st.booleans(), seed=st.integers(0, 99))
@settings(max_examples=3)
def test_a_run_that_is_cut_in_the_middle_gives_what_one_without_a_cut_gives(
    name: str, sent: Sends, after: list[int], workers: int, compact: bool, seed: int
) -> None:
    build = UNARY[name]
    assert cut_run(build, sent, after, workers, compact=compact, seed=seed) == run(build, sent, workers=workers)


@pytest.mark.parametrize("name", BUILDS)
@given(batches=edges, after=steps, workers=st.integers(1, 3), compact=st.booleans(), seed=st.integers(0, 99))
@example(batches=[[(0, [(0, 1), (1, 2), (2, 3), (3, 4)])], [], [], []], after=[9, 9, 9], workers=2, compact=False, seed=1)
@settings(max_examples=2)
def test_a_graph_algorithm_that_is_cut_in_a_loop_gives_what_it_gives_without(
    name: str, batches: Edges, after: list[int], workers: int, compact: bool, seed: int
) -> None:
    sent = _batches(batches, "numbers")

    def build(scope: Any, stream: Any) -> Any:
        return BUILDS[name](stream, 3)

    assert cut_run(build, sent, after, workers, compact=compact, seed=seed) == run(build, sent, workers=workers)


@pytest.mark.parametrize("name", ["connected_components", "strongly_connected_components", "breadth_first_search", "pagerank"])
@given(batches=edges, after=steps, workers=st.integers(1, 2), seed=st.integers(0, 99))
@example(batches=[[], [(0, [(0, 0), (1, 2)])], [], [(0, [(0, 0)])]], after=[6, 14], workers=1, seed=0)
@settings(max_examples=2)
def test_a_graph_algorithm_with_little_memory_is_cut_too(
    name: str, batches: Edges, after: list[int], workers: int, seed: int
) -> None:
    """Its results are sent one container after the other, and what it keeps is on disk."""
    sent = _batches(batches, "numbers")

    def build(scope: Any, stream: Any) -> Any:
        return BUILDS[name](stream, 3)

    with MemoryBudget(1000):
        outputs = cut_run(build, sent, after, workers, compact=False, seed=seed)
    assert outputs == run(build, sent, workers=workers)


# -- with files ------------------------------------------------------------------------------------------------------------


def program(worker: timely.Worker, where: Path, build: Any, *, advance: bool = True, steps: int = 0) -> list[Any]:
    """Send all at time 0, and cut after so many steps, or run to the end; return what came out."""
    with timely.Recovery(worker, where) as recovery:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            seen = build(stream).capture()
        first = recovery.time or 0
        handle.advance_to(first)
        if first == 0:
            handle.send_batch(list(range(worker.index, 40, worker.peers)))
        if advance:
            handle.advance_to(1)
        if steps:
            for _ in range(steps):
                worker.step()
            recovery.checkpoint(1, in_flight=True)
        else:
            handle.close()
            worker.run()
    return [record for _, records in seen.extract() for record in records]


def counted_down(stream: Any) -> Any:
    with stream.scope.iterative() as loop:
        handle, again = loop.feedback()
        known = stream.enter(loop).concat(again).distinct()
        known.filter(lambda n: n > 0).map(lambda n: n - 1).connect_loop(handle, timely.Exchange(lambda n: n))
        return known.leave()


def test_a_checkpoint_in_a_loop_is_written_and_read(tmp_path: Path) -> None:
    parts = []
    for steps in (5, 4, 4, 0):
        parts += timely.execute(partial(program, where=tmp_path, build=counted_down, steps=steps), workers=2)
    whole = timely.execute(lambda worker: program(worker, tmp_path / "whole", counted_down), workers=2)
    assert sorted(itertools.chain(*parts)) == sorted(itertools.chain(*whole)) != []


def rank_rounds(edges: Any) -> Any:
    return pagerank(edges, rounds=9)


def cores(edges: Any) -> Any:
    vertices = edges.map_batch(lambda batch: pa.record_batch({"node": batch["src"]}))
    return k_core(edges, vertices).map_batch(lambda batch: batch["node"].to_pylist())


@pytest.mark.parametrize(
    ("algorithm", "place", "format"),
    [
        (rank_rounds, (rank, "register_parts", lambda info, parts, _: register_parts(info, parts, "rank/7")), "rank"),
        (cores, (_Peeling, "format", 7), "_Peeling"),
    ],
)
def test_another_format_of_a_loop_is_refused(
    algorithm: Any, place: Any, format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(numbers: Any) -> Any:
        return algorithm(numbers.map_batch(lambda result: pa.record_batch({"src": result, "dst": [n // 2 for n in result]})))

    def run(steps: int) -> list[Any]:
        return timely.execute(partial(program, where=tmp_path, build=build, steps=steps))[0]

    assert run(steps=6) == []
    with monkeypatch.context() as patch:
        patch.setattr(*place)
        with pytest.raises(StateError, match=rf"#[0-9]: the checkpoint .* has format '{format}/1', and .* reads '{format}/7'"):
            run(steps=0)
    assert len(run(steps=0)) == 40


FORMATS = {
    "labels/1": {
        "Adjacency": "_columns _limited _peers _segments _spooled _worker scanned",
        "SortedBlocks": "_blocks _firsts _rows",
        "_Part": "_by_neighbour _by_node _labels _peers _workers own",
        "_Sorted": "rest sources starts table",
    },
    "names/1": {
        "_Part": "named names roots",
    },
    "propagation/1": {
        "Adjacency": "_columns _limited _peers _segments _spooled _worker scanned",
        "Best": "_scratch values",
        "Propagation": "_adjacency _best _offered _peers _worker",
        "SortedBlocks": "_blocks _firsts _rows",
        "_Sorted": "rest sources starts table",
    },
    "rank/1": {
        "_Edges": "_adds _length _reads _slots _sources places",
        "_Part": "_edges _given _incoming _loose _own _parts _scale _space _total _worker ranks",
        "_SpooledEdges": "_blocks _length _peers places",
    },
    "supersteps/1": {
        "_Part": "edges states",
    },
}
"""The attributes of each class in the state of a loop, by format: who changes the one changes the other."""


def attributes(value: Any, classes: dict[str, set[str]]) -> None:
    """Add the attributes of the classes of ``timely.graphs`` that ``value`` is pickled with."""
    parts = [*value.values()] if isinstance(value, dict) else [*value] if isinstance(value, list | tuple | set) else []
    if type(value).__module__.startswith("timely.graphs"):
        *_, state = value.__reduce_ex__(4)[:3]
        fields: dict[str, Any] = {}
        for part in state if isinstance(state, tuple) else (state,):
            fields |= part or {}
        classes.setdefault(type(value).__qualname__, set()).update(fields)
        parts += fields.values()
    for part in parts:
        attributes(part, classes)


def test_the_format_of_a_loop_changes_with_the_attributes_of_what_it_saves() -> None:
    formats: dict[str, dict[str, set[str]]] = {}
    pairs = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (2, 5)]
    for name, kind, limit in ((name, *how) for name in BUILDS for how in (("numbers", 1000), ("names", None))):
        with MemoryBudget(limit):
            phase = Phase(lambda scope, stream: BUILDS[name](stream, 3 if kind == "numbers" else "n3"), 1, 1, [])  # noqa: B023
            feed(phase, [_batches([[(0, pairs)], [], [], []], kind)], 0, EPOCHS)
            phase.advance_to(EPOCHS)
            while not phase.workers[0].idle:
                pause(phase.workers, phase.network)
                for pieces in phase.state_registries[0].snapshot(in_flight=True).values():
                    for _, item in map(pickle.loads, pieces):
                        if isinstance(item, tuple) and isinstance(item[0], str) and re.fullmatch(r"\w+/[0-9]+", item[0]):
                            attributes(item[2], formats.setdefault(item[0], {}))
                phase.workers[0].paused = False
    seen = {format: {kind: " ".join(sorted(fields)) for kind, fields in of.items()} for format, of in formats.items()}
    assert seen == FORMATS


def test_only_as_many_workers_go_on_in_a_loop(tmp_path: Path) -> None:
    timely.execute(lambda worker: program(worker, tmp_path, counted_down, steps=5), workers=2)
    with pytest.raises(StateError, match="in flight on 2 workers, and cannot go on with 1: run 2 workers"):
        timely.execute(lambda worker: program(worker, tmp_path, counted_down), workers=1)


def test_what_cannot_be_saved_in_flight_is_refused(tmp_path: Path) -> None:
    def differential(stream: Any) -> Any:
        return dd.from_updates(stream.map(lambda n: ((n, n), 1))).count_by_key().stream

    def generators(stream: Any) -> Any:
        return stream.map_batch(lambda batch: [(n for n in batch)]).unary(timely.Pipeline, "never reads", unread)

    def unread(capability: Any, info: timely.OperatorInfo) -> Any:
        info.declare_stateless()
        return lambda input, output: None

    def holding(capability: Any, info: timely.OperatorInfo) -> Any:
        info.declare_stateless()
        return lambda input, output, held=capability: None

    def held(stream: Any) -> Any:
        return stream.unary(timely.Pipeline, "holds", holding)

    def held_inside(stream: Any) -> Any:
        with stream.scope.iterative() as outer, outer.iterative() as inner:
            return held(stream.enter(outer).enter(inner)).leave().leave()

    refused: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
        (differential, {}, StateError, "whole only between two times"),
        (generators, {}, StateError, "operator 'never reads' .* has a message in flight that cannot be pickled"),
        (counted_down, {"advance": False}, CheckpointError, "a capability of .*input#0 at 0, which has registered no state"),
        (held, {}, CheckpointError, "a capability of .*holds#1 at 0"),
        (held_inside, {}, CheckpointError, r"a capability of .*/holds#\d at .*\(0, 0\), 0\), which has registered no state"),
    ]
    for number, (build, options, kind, message) in enumerate(refused):
        with pytest.raises(kind, match=message):
            program(timely.Worker(), tmp_path / str(number), build, steps=3, **options)


def test_a_capability_that_goes_within_some_steps_is_waited_for(tmp_path: Path) -> None:
    left = [3]

    def holding(capability: Any, info: timely.OperatorInfo) -> Any:
        info.declare_stateless()

        def logic(input: Any, output: Any) -> None:
            list(input)
            left[0] -= 1
            if left[0]:
                info.activator.activate()
            else:
                capability.drop()

        return logic

    program(timely.Worker(), tmp_path, lambda stream: stream.unary(timely.Pipeline, "holds", holding), steps=1)
    assert left == [0]


def test_a_custom_scope_is_refused(tmp_path: Path) -> None:
    class Nothing:
        inputs = outputs = 0

        def get_internal_summary(self) -> Any:
            return [], []

        def set_external_summary(self, *_: object) -> None: ...

        def push_external_progress(self, *_: object) -> None: ...

        def pull_internal_progress(self, *_: object) -> bool:
            return False

        def checkpoint(self) -> None: ...

        def restore(self, state: object) -> None: ...

    def build(stream: Any) -> Any:
        stream.scope.add_scope(Nothing(), name="mine")
        return stream

    with pytest.raises(StateError, match="scope 'mine' .* is an object given to add_scope"):
        program(timely.Worker(), tmp_path, build, steps=1)
