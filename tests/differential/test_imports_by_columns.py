"""Imports of large arrangements, which are read by columns, hold what their sources hold."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import timely
from timely import differential as dd

np = pytest.importorskip("numpy")

EPOCHS = 6


def built(scope: Any, pairs: Any, keys: Any) -> dict[str, dd.Collection[Any, Any]]:
    """Programs on an arrangement, filtered or not, and a collection of pairs."""
    return {
        "left": pairs.join_map(keys, lambda key, value, other: (key, value)),
        "right": keys.join_map(pairs, lambda key, other, value: (key, value)),
        "columns": pairs.as_collection().join_map(keys, lambda k, v, w: (k, v), columns=lambda k, v, w: (k, v)),
        "semijoin": pairs.semijoin(keys.map(lambda pair: pair[0])),
        "reduce": pairs.reduce(lambda key, values: [(tuple(values), 1)]),
        "count": pairs.as_collection().count_by_key(),
        "least": pairs.as_collection().min_by_key(),
        "distinct": pairs.distinct(),
        "records": pairs.as_collection(),
    }


def expected(pairs: Counter[Any], keys: Counter[Any]) -> dict[str, Counter[Any]]:
    """What the programs hold."""
    results: dict[str, Counter[Any]] = {name: Counter() for name in ("join", "reduce", "count", "least", "distinct", "records")}
    groups: dict[Any, dict[Any, int]] = {}
    others = Counter[Any]()
    for (key, _), count in keys.items():
        others[key] += count
    for (key, value), count in pairs.items():
        if count:
            groups.setdefault(key, {})[value] = count
            results["records"][key, value] = count
            results["join"][key, value] = count * others[key]
            results["distinct"][key, value] = int(count > 0)
    for key, values in groups.items():
        results["reduce"][key, tuple(sorted(values.items()))] = 1
        results["count"][key, sum(values.values())] = 1
        if any(count > 0 for count in values.values()):
            results["least"][key, min(value for value, count in values.items() if count > 0)] = 1
    return results


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("queried", [1, 140, 600])
@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("words", [False, True])
def test_what_an_import_holds(seed: int, queried: int, filtered: bool, words: bool) -> None:
    chance = random.Random(seed)
    since = seed % 3
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            session, pairs = dd.new_collection(scope)
            arranged = pairs.arrange_by_key()
            if filtered:
                arranged = arranged.filter_trace(lambda key, value: key % 3 != 0)
            probe = arranged.as_collection().count_by_key().probe()
        trace = arranged.trace
        held, states = Counter[Any](), []

        def change(epoch: int) -> None:
            count = chance.choice([3, 200, 700])
            new = [(chance.randrange(500), chance.randrange(3)) for _ in range(count)]
            gone = [record for record, n in held.items() if n > 0 and chance.random() < 0.2]
            session.insert_columns([key for key, _ in new], [value for _, value in new])
            if gone:
                session.insert_columns([key for key, _ in gone], [value for _, value in gone], diff=-1)
            held.update(new)
            held.subtract(gone)
            if words and epoch == 1:
                session.insert((499.5, 7))
                held[499.5, 7] += 1
            session.advance_to(epoch + 1)
            states.append(Counter({pair: n for pair, n in held.items() if not filtered or pair[0] % 3 != 0}))

        for epoch in range(3):
            change(epoch)
        worker.step_while(lambda: probe.less_than(3))
        trace.advance(since)
        worker.step()
        with worker.dataflow(int) as scope:
            query, asked = dd.new_collection(scope)
            imported = trace.import_into(scope)
            outputs = {name: one.output() for name, one in built(scope, imported, asked).items()}
        keys, keys_by_epoch = Counter[Any](), []
        for epoch in range(EPOCHS):
            if epoch in (0, 4):
                more = range(queried) if epoch == 0 else range(queried - 200, queried + 200)
                query.insert_columns(list(more), [0] * len(more))
                keys.update((key, 0) for key in more)
            keys_by_epoch.append(Counter(keys))
            query.advance_to(epoch + 1)
            if epoch >= 3:
                change(epoch)
            if chance.random() < 0.5:
                worker.step()
        for time in range(since, EPOCHS):
            right = expected(states[time], keys_by_epoch[time])
            for name, output in outputs.items():
                wanted = right["join" if name in ("left", "right", "columns", "semijoin") else name]
                assert output.at(time) == {record: n for record, n in wanted.items() if n}, (name, time)
        imported.close()
        query.close()
        session.close()
        worker.run()


def smallest(pairs: Any, labels: dd.Collection[int, Any]) -> dd.Collection[int, Any]:
    result: dd.Collection[int, Any] = dd.graphs.propagate(pairs, labels)
    return result


def smallest_in_a_loop(pairs: Any, labels: dd.Collection[int, Any]) -> dd.Collection[int, Any]:
    def step(loop: Any, smallest: dd.Collection[Any, Any]) -> dd.Collection[Any, Any]:
        steps: dd.Collection[Any, Any] = pairs.enter(loop).join_map(smallest, lambda node, target, label: (target, label))
        return steps.concat(labels.enter(loop)).min_by_key()

    return dd.iterate(labels.scope, step)


def smallest_in_two_loops(pairs: Any, labels: dd.Collection[int, Any]) -> dd.Collection[int, Any]:
    with labels.scope.region() as region, region.iterative() as loop:
        inside = smallest_in_a_loop(pairs.enter(region).enter(loop), labels.enter(region).enter(loop))
        result: dd.Collection[int, Any] = inside.leave().leave()
        return result


@pytest.mark.parametrize("since", [0, 2])
@pytest.mark.parametrize("labelled", [1, 200, 600])
@pytest.mark.parametrize("build", [smallest, smallest_in_a_loop, smallest_in_two_loops])
def test_loop_1_an_import_that_is_read_in_a_loop(build: Callable[..., Any], labelled: int, since: int) -> None:
    """150 paths grow by an edge in each epoch; a node has its number as its label, or the first one that reaches it."""
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            session, pairs = dd.new_collection(scope)
            arranged = pairs.arrange_by_key()
            probe = arranged.as_collection().probe()
        trace = arranged.trace
        for epoch in range(3):
            nodes = np.arange(150 * epoch, 150 * epoch + 150)
            session.insert_columns(nodes, nodes + 150)
            session.advance_to(epoch + 1)
        worker.step_while(lambda: probe.less_than(3))
        trace.advance(since)
        worker.step()
        with worker.dataflow(int) as scope:
            imported = trace.import_into(scope)
            smallest = build(imported, dd.collection(scope, [(node, node) for node in range(labelled)])).output()
        session.insert((599, 749))
        session.close()
        worker.run()
        for epoch in range(since, 4):
            nodes = range(150 * epoch + 300) if epoch < 3 else (*range(600), 749)
            expected = {(node, node % 150): 1 for node in nodes if node % 150 < labelled}
            expected |= {(node, node): 1 for node in range(len(nodes), labelled)}
            assert smallest.at(epoch) == expected
