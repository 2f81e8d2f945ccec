"""Cases for the model and the code: graphs, exchanges, nested scopes, compaction, reductions and joins, random and exhaustive.

A case is plain data, as it stands in the committed traces. A time is a pair; an ``int`` has 0 as its second number. A summary is
``[outer, inner, limit]``, or ``"leave"``. Locations are numbers: a node's inputs, then its outputs, node by node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from typing import Any, Final, TypeAlias

from timely.progress import ProgressGroups

Case: TypeAlias = dict[str, Any]
STAY: Final = [0, 0, None]


def locations(nodes: Sequence[Case]) -> tuple[list[list[int]], list[list[int]]]:
    """Return the numbers of the inputs and of the outputs of each node."""
    inputs, outputs, number = [], [], 0
    for node in nodes:
        inputs.append(list(range(number, number + node["inputs"])))
        number += node["inputs"]
        outputs.append(list(range(number, number + node["outputs"])))
        number += node["outputs"]
    return inputs, outputs


def size(nodes: Sequence[Case]) -> int:
    """Return the number of locations."""
    return sum(node["inputs"] + node["outputs"] for node in nodes)


def arcs(graph: Case) -> list[list[Any]]:
    """Return the edges between locations, ``[from, summary, to]``: those through nodes, and those between them."""
    inputs, outputs = locations(graph["nodes"])
    collected = []
    for number, node in enumerate(graph["nodes"]):
        for i, o, summary in node["summaries"]:
            collected.append([inputs[number][i], summary, outputs[number][o]])
    for (n, o), (m, i), _ in graph["edges"]:
        collected.append([outputs[n][o], STAY, inputs[m][i]])
    return collected


def _summary(random: Random, pairs: bool, *, advancing: bool) -> list[Any]:
    outer, inner = random.choice([0, 0, 0, 1, 2]), random.choice([0, 0, 1]) if pairs else 0
    if advancing and not outer + inner:
        outer, inner = (0, 1) if pairs and random.random() < 0.7 else (1, 0)
    return [outer, inner, random.choice([4, 6]) if random.random() < 0.15 else None]


def random_graph(random: Random, *, pairs: bool, most: int = 6, dense: bool = False) -> Case:
    """Return a graph in which only nodes that advance lead back; in a ``dense`` one most do."""
    count = random.randint(4 if dense else 2, most)
    nodes: list[Case] = []
    for number in range(count):
        inputs, outputs = (0 if number == 0 else random.randint(1, 2)), random.randint(1, 2)
        advancing = random.random() < (0.8 if dense else 0.4)
        summaries = [
            [i, o, _summary(random, pairs, advancing=advancing)]
            for i in range(inputs)
            for o in range(outputs)
            for _ in range(random.choice([0, 1, 1, 1, 2]))
        ]
        observes = [i for i in range(inputs) if random.random() < (0.3 if dense else 0.6)]
        nodes.append({"inputs": inputs, "outputs": outputs, "summaries": summaries, "observes": observes, "advancing": advancing})
    edges = []
    for number, node in enumerate(nodes):
        for i in range(node["inputs"]):
            back = [other for other in range(count) if other >= number and nodes[other]["advancing"]]
            forth = list(range(number))
            start = random.choice(back) if back and random.random() < (0.7 if dense else 0.45) else random.choice(forth)
            edges.append([[start, random.randrange(nodes[start]["outputs"])], [number, i], random.random() < 0.4])
    for node in nodes:
        del node["advancing"]
    return {"pairs": pairs, "nodes": nodes, "edges": edges}


def knot(random: Random, *, pairs: bool) -> Case:
    """Return a graph in which most nodes lead to some others, each later: its feedback set has several members."""
    count = 11
    nodes: list[Case] = [{"inputs": 0, "outputs": 1, "summaries": [], "observes": []}]
    edges: list[Any] = []
    for number in range(1, count):
        starts = [other for other in range(count) if random.random() < 0.3] or [0]
        summaries = [[i, 0, [0, 1, None] if pairs and random.random() < 0.5 else [1, 0, None]] for i in range(len(starts))]
        nodes.append({"inputs": len(starts), "outputs": 1, "summaries": summaries, "observes": [0]})
        edges += [[[start, 0], [number, i], False] for i, start in enumerate(starts)]
    return {"pairs": pairs, "nodes": nodes, "edges": edges}


def moves(random: Random, graph: Case, rounds: int) -> list[list[Any]]:
    """Return rounds in each of which one pointstamp goes and another one comes."""
    places = random.sample(range(size(graph["nodes"])), rounds)
    return [
        [[new, [1, 0], 1], *([[old, [1, 0], -1]] if number else [])]
        for number, (old, new) in enumerate(zip([0, *places], places))
    ]


def _time(random: Random, pairs: bool) -> list[int]:
    return [random.randint(0, 3), random.randint(0, 3) if pairs else 0]


def random_changes(random: Random, graph: Case, rounds: int) -> list[list[Any]]:
    """Return rounds of changes ``[location, time, diff]``; counts are negative only where no local edge ends."""
    inputs, outputs = locations(graph["nodes"])
    local = {
        ends for start, end, held in graph["edges"] if held for ends in (outputs[start[0]][start[1]], inputs[end[0]][end[1]])
    }
    counts: dict[tuple[int, tuple[int, ...]], int] = {}
    collected = []
    for _ in range(rounds):
        changes = []
        for _ in range(random.randint(1, 4)):
            nonzero = [stamp for stamp, count in counts.items() if count]
            if random.random() < 0.3:  # a message that was read before its sender's batch arrived
                start, end, stays = random.choice(graph["edges"])
                time = tuple(_time(random, graph["pairs"]))
                if not stays:
                    ends = [outputs[start[0]][start[1]], inputs[end[0]][end[1]]]
                    for place, diff in zip(ends, random.choice([(1, -1), (-1, 1)]), strict=True):
                        if place not in local:
                            counts[place, time] = counts.get((place, time), 0) + diff
                            changes.append([place, list(time), diff])
                    continue
            if nonzero and random.random() < 0.5:
                place, time = random.choice(nonzero)
                diff = -counts[place, time]
            else:
                place, time = random.randrange(size(graph["nodes"])), tuple(_time(random, graph["pairs"]))
                diff = random.choice([1, 1, 2, -1])
            if place in local and counts.get((place, time), 0) + diff < 0:
                continue
            counts[place, time] = counts.get((place, time), 0) + diff
            changes.append([place, list(time), diff])
        collected.append(changes)
    return collected


def crossings(random: Random, graph: Case) -> list[list[Any]]:
    """Return rounds in which counts jump over zero, up and down, at places where they may be negative."""
    places = range(size(graph["nodes"]))
    stamps = [(random.choice(places), _time(random, graph["pairs"])) for _ in range(4)]
    rounds, counts = [], [0] * len(stamps)
    for sign in (-1, 1, -1, 1):
        changed = [n for n in range(len(stamps)) if random.random() < 0.8]
        targets = [sign * random.randint(1, 3) for _ in changed]
        rounds.append([[*stamps[n], target - counts[n]] for n, target in zip(changed, targets, strict=True)])
        for n, target in zip(changed, targets, strict=True):
            counts[n] = target
    return rounds


def frontier_cases() -> Iterator[Case]:
    """Yield graphs with changes of counts: random ones, every graph of two nodes, and counts that jump over zero."""
    random = Random(1)
    for number in range(80):
        dense = number % 4 > 1
        graph = random_graph(random, pairs=number % 2 == 1, most=8 if dense else 6, dense=dense)
        yield {**graph, "rounds": random_changes(random, graph, 5)}
    for number in range(30):
        graph = knot(random, pairs=number % 2 == 1)
        yield {**graph, "rounds": moves(random, graph, 3)}
    through = [STAY, [1, 0, None], [2, 0, 3]]
    for first, second, *sources in product(through, through, *[[None, 0, 1]] * 2):
        passing = [(other, number) for number, other in enumerate(sources) if other is not None]
        stays = {number for number, summary in enumerate((first, second)) if summary == STAY}
        if any(a == b and a in stays for a, b in passing) or (set(passing) == {(0, 1), (1, 0)} and stays == {0, 1}):
            continue  # time would not advance
        nodes = [{"inputs": 1, "outputs": 1, "summaries": [[0, 0, summary]], "observes": [0]} for summary in (first, second)]
        edges = [[[other, 0], [number, 0], False] for other, number in passing]
        rounds = [[[place, [1, 0], 1], [place - 1, [1, 0], -1]] if place else [[0, [1, 0], 1]] for place in range(4)]
        yield {"pairs": False, "nodes": nodes, "edges": edges, "rounds": rounds}
    for number in range(12):
        graph = random_graph(random, pairs=number % 3 > 0)
        edges = [[start, end, False] for start, end, _ in graph["edges"]]  # counts at local edges are never negative
        graph = {**graph, "edges": edges}
        yield {**graph, "rounds": crossings(random, graph)}


# -- exchanges -----------------------------------------------------------------------------------------------------


def pipeline() -> Case:
    """Return a source, a loop that advances, and a sink; the first edge of the loop is local."""
    return {
        "pairs": False,
        "nodes": [
            {"inputs": 0, "outputs": 1, "summaries": [], "observes": []},
            {"inputs": 2, "outputs": 1, "summaries": [[0, 0, STAY], [1, 0, STAY]], "observes": [0, 1]},
            {"inputs": 1, "outputs": 1, "summaries": [[0, 0, [1, 0, 3]]], "observes": [0]},
            {"inputs": 1, "outputs": 0, "summaries": [], "observes": [0]},
        ],
        "edges": [[[0, 0], [1, 0], False], [[1, 0], [2, 0], True], [[2, 0], [1, 1], False], [[1, 0], [3, 0], False]],
    }


def ranks(graph: Case) -> list[list[int]]:
    """Return a rank for each location that grows along all edges that do not advance."""
    ways = [(start, end) for start, (outer, inner, _), end in arcs(graph) if outer + inner == 0]
    rank = [0] * size(graph["nodes"])
    for _ in rank:
        for start, end in ways:
            rank[end] = max(rank[end], rank[start] + 1)
    return [[0, number] for number in rank]


def groups_of(mode: str, workers: int) -> ProgressGroups:
    """Return the groups of a mode: two workers in each process, two members in each group of a tree."""
    if mode == "tree":
        return ProgressGroups.tree(workers, 2)
    return ProgressGroups.named(mode, workers, 2 if mode == "process" else 1)  # type: ignore[arg-type]


def ways_of(groups: ProgressGroups) -> Case:
    """Return who sends what to whom, as tables: what ``Groups.check`` decides about."""
    workers = range(groups.workers)
    near = [groups.neighbours(worker) for worker in workers]

    def forwards(start: int, middle: int, end: int) -> bool:
        return any(start in one and end in other for one in near[middle] for other in near[middle] if one is not other)

    paths = [[groups.path(start, end) for end in workers] for start in workers]
    return {
        "sends": [[any(end in members for members in near[start]) for end in workers] for start in workers],
        "forwards": [[[forwards(start, middle, end) for end in workers] for middle in workers] for start in workers],
        "before": [[path[-2] if len(path) > 1 else path[0] for path in row] for row in paths],
        "distance": [[len(path) - 1 for path in row] for row in paths],
    }


class _Draft:
    """A run in the making: what may be done next, by the contract of operators."""

    def __init__(self, graph: Case, workers: int) -> None:
        self.graph = graph
        self.inputs, self.outputs = locations(graph["nodes"])
        self.sources = [place for places in self.outputs for place in places]
        local = [self.inputs[m][i] for _, (m, i), held in graph["edges"] if held]
        self.owned = {*self.sources, *local}
        self.ways = {
            place: [(s, end) for start, s, end in arcs(graph) if start == place] for place in range(size(graph["nodes"]))
        }
        self.held = [{(place, (0, 0)): 1 for place in self.sources} for _ in range(workers)]
        self.messages: dict[tuple[int, tuple[int, int]], int] = {}

    def _past(self, place: int, time: tuple[int, int], start: tuple[int, int] | None = None) -> list[tuple[int, tuple[int, int]]]:
        return [(end, (time[0] + s[0], time[1] + s[1])) for s, end in self.ways[place] if s[2] is None or time[0] + s[0] <= s[2]]

    def statement(self, random: Random, worker: int) -> tuple[list[Any], list[Any]] | None:
        """Return what a worker loses and gains in one activation, or None if it has nothing to do."""
        held = [stamp for stamp, count in self.held[worker].items() if count and stamp[0] in self.sources]
        readable = [stamp for stamp, count in self.messages.items() if count]
        readable += [stamp for stamp, count in self.held[worker].items() if count and stamp[0] not in self.sources]
        lost: list[Any] = []
        gained: list[Any] = []
        if readable and random.random() < 0.6:
            stamp = random.choice(readable)
            lost.append(stamp)
            for output, time in self._past(*stamp):
                kind = random.choice(["hold", "send", "both", "none"])
                later = (time[0] + random.choice([0, 0, 1]), time[1])
                if kind in ("hold", "both"):
                    gained.append((output, later))
                if kind in ("send", "both"):
                    gained += self._past(output, time)
        elif held:
            stamp = random.choice(held)
            kind = random.choice(["drop", "downgrade", "send", "send and drop", "clone"])
            if kind in ("drop", "downgrade", "send and drop"):
                lost.append(stamp)
            if kind == "downgrade":
                gained.append((stamp[0], (stamp[1][0] + 1, stamp[1][1])))
            if kind == "clone":
                gained.append(stamp)
            if kind.startswith("send"):
                gained += self._past(*stamp)
        if not lost and not gained:
            return None
        for sign, stamps in ((-1, lost), (1, gained)):
            for place, when in stamps:
                counts = self.held[worker] if place in self.owned else self.messages
                counts[place, when] = counts.get((place, when), 0) + sign
        return lost, gained


def random_exchange(random: Random, mode: str, workers: int, decisions: int) -> Case:
    """Return a legal run of a mode, with the decisions of each worker in any order."""
    graph = pipeline()
    groups = groups_of(mode, workers)
    draft = _Draft(graph, workers)
    waiting = {(start, end): 0 for start in range(workers) for members in groups.neighbours(start) for end in members}
    collected: list[Any] = []
    while len(collected) < decisions:
        kind = random.choice(["do", "do", "flush", "receive", "receive"])
        worker = random.randrange(workers)
        if kind == "do":
            done = draft.statement(random, worker)
            if done is not None:
                collected.append(["do", worker, *([[place, list(time)] for place, time in stamps] for stamps in done)])
        elif kind == "flush":
            members = [member for group in groups.neighbours(worker) for member in group]
            for member in members:
                waiting[worker, member] += 1
            collected.append(["flush", worker, members])
        else:
            ready = [pair for pair, count in waiting.items() if count]
            if ready:
                pair = random.choice(ready)
                waiting[pair] -= 1
                collected.append(["receive", *pair])
    return {**graph, "mode": mode, "workers": workers, "decisions": collected}


def _interleavings(*chains: Sequence[Any]) -> Iterator[list[Any]]:
    if not any(chains):
        yield []
    for number, chain in enumerate(chains):
        if chain:
            rest = [*chains[:number], chain[1:], *chains[number + 1 :]]
            yield from ([chain[0], *tail] for tail in _interleavings(*rest))


def small_exchanges() -> Iterator[Case]:
    """Yield every interleaving of two workers of which one sends a message that the other reads, and sends on."""
    graph: Case = {
        "pairs": False,
        "nodes": [
            {"inputs": 0, "outputs": 1, "summaries": [], "observes": []},
            {"inputs": 1, "outputs": 1, "summaries": [[0, 0, STAY]], "observes": [0]},
            {"inputs": 1, "outputs": 0, "summaries": [], "observes": [0]},
        ],
        "edges": [[[0, 0], [1, 0], False], [[1, 0], [2, 0], False]],
    }
    source, middle, held, sink = 0, 1, 2, 3
    send: list[Any] = ["do", 0, [[source, [0, 0]]], [[middle, [0, 0]]]]
    read: list[Any] = ["do", 1, [[middle, [0, 0]], [held, [0, 0]]], [[sink, [0, 0]]]]
    drop: list[Any] = ["do", 0, [[held, [0, 0]]], []]
    chains = [[send, ["flush", 0, [1]], ["receive", 0, 1], drop], [read, ["flush", 1, [0]], ["receive", 1, 0]]]
    for order in _interleavings(*chains):
        if order.index(send) < order.index(read) and order.index(["flush", 0, [1]]) < order.index(["receive", 0, 1]):
            yield {**graph, "mode": "direct", "workers": 2, "decisions": order}


def exchange_cases() -> Iterator[Case]:
    """Yield runs of each mode, and every interleaving of a small one."""
    random = Random(2)
    for mode, workers, many in (("direct", 2, 6), ("direct", 3, 6), ("process", 4, 6), ("central", 3, 6), ("tree", 5, 6)):
        for _ in range(many):
            yield random_exchange(random, mode, workers, 40)
    yield from small_exchanges()


# -- nested scopes -------------------------------------------------------------------------------------------------


def nesting_cases() -> Iterator[Case]:
    """Yield loops with an input and outputs, what is counted in them, and what may still enter."""
    random = Random(3)
    while True:
        graph = random_graph(random, pairs=True, most=5)
        nodes = graph["nodes"]
        # node 0 of a graph has no inputs: its outputs are what enters
        leaving = [
            [number, o] for number in range(1, len(nodes)) for o in range(nodes[number]["outputs"]) if random.random() < 0.6
        ]
        if not leaving:
            continue
        graph["leaving"] = leaving
        graph["edges"] = [[start, end, False] for start, end, _ in graph["edges"]]
        first = nodes[0]["outputs"]
        rounds = random_changes(random, graph, 4)
        inside = [[change for change in changes if change[0] >= first] for changes in rounds]
        entering = [[port, sorted({random.randint(0, 3) for _ in range(random.randint(0, 2))})[:1]] for port in range(first)]
        yield {**graph, "rounds": inside, "entering": entering}


# -- collections ---------------------------------------------------------------------------------------------------


def compaction_cases() -> list[Any]:
    """Return every time with every antichain of a grid of three by three, and some larger ones: ``[time, frontier]``."""
    grid = [[x, y] for x in range(3) for y in range(3)]
    collected = []
    for chosen in product([False, True], repeat=9):
        frontier = [time for time, here in zip(grid, chosen, strict=True) if here]
        if all(a == b or not (a[0] <= b[0] and a[1] <= b[1]) for a in frontier for b in frontier):
            collected += [[time, frontier] for time in grid]
    random = Random(4)
    for _ in range(100):
        xs, ys = sorted(random.sample(range(12), 4)), sorted(random.sample(range(12), 4), reverse=True)
        collected.append([[random.randrange(12), random.randrange(12)], [list(pair) for pair in zip(xs, ys, strict=True)]])
    return collected


VALUES: Final = 4


def reduction_cases() -> Iterator[Case]:
    """Yield batches of changes ``[time, value, diff]`` of one key, at partially ordered times, and which function is kept."""
    random = Random(5)
    for number in range(40):
        batches: list[Any] = []
        for _ in range(random.randint(1, 4)):
            batch: list[Any] = []
            for _ in range(random.randint(1, 3)):
                time, value = [random.randrange(4), random.randrange(4)], random.randrange(VALUES)
                batch.append([time, value, random.choice([1, 1, 2])])
                if random.random() < 0.4:
                    batch.append([[time[0] + random.randrange(2), time[1] + random.randrange(2)], value, -batch[-1][2]])
            batches.append(batch)
        yield {"most": number % 2 == 0, "batches": batches}


def join_cases() -> Iterator[Case]:
    """Yield changes ``[key, value, time, diff]`` of two sides, at partially ordered times; some come back later."""
    random = Random(6)
    for _ in range(40):
        sides: list[Any] = []
        for _ in range(2):
            side: list[Any] = []
            for _ in range(random.randint(1, 6)):
                time = [random.randrange(4), random.randrange(4)]
                change: list[Any] = [random.randrange(2), random.randrange(VALUES), time, random.choice([1, 1, 2])]
                side.append(change)
                if random.random() < 0.4:
                    later = [time[0] + random.randrange(2), time[1] + random.randrange(2)]
                    side.append([*change[:2], later, -change[3]])
            sides.append(side)
        yield {"left": sides[0], "right": sides[1]}
