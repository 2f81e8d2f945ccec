"""Faults made by hand: in the compiler's plan, the engine, the projection, the exchange, compaction, reductions and joins.

White box: each puts something wrong in the place of one rule of an implementation module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
import pytest

from timely.differential.operators import aggregates, reduce_inputs, reductions, trace_joins
from timely.differential.trace import compaction_frontier
from timely.differential.trace.entries import compacted
from timely.progress import ChangeBatch, Lattice, ProgressBatch, ProgressExchange, compiler, engine, exchange
from timely.scopes import count_sinks, subgraph_builder

Patch = Callable[[pytest.MonkeyPatch], None]


@attrs.frozen
class Fault:
    """A rule that is broken, and the family of traces that must notice."""

    name: str
    family: str
    patch: Patch
    merge: bool = False


def _shifts_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    follow = compiler._Contraction._follow

    def forgetful(self: Any, start: int, end: int, summary: Any) -> None:
        follow(self, start, end, summary)
        self.shifts[start] = None

    patch.setattr(compiler._Contraction, "_follow", forgetful)


def _negative_counts_are_contracted(patch: pytest.MonkeyPatch) -> None:
    only_way = compiler._Contraction._only_way

    def careless(self: Any, location: int) -> Any:
        self._topology.nonnegative = bytearray(b"\1" * self._topology.size)
        return only_way(self, location)

    patch.setattr(compiler._Contraction, "_only_way", careless)


def _nothing_comes_back(patch: pytest.MonkeyPatch) -> None:
    def forth_only(ways: Mapping[int, Any]) -> Any:
        return [step._replace(back={}) for step in eliminate(ways)]

    eliminate = compiler.eliminate
    patch.setattr(compiler, "eliminate", forth_only)


def _nothing_is_joined(patch: pytest.MonkeyPatch) -> None:
    def unjoined(ways: Mapping[int, Any]) -> Any:
        left = list(ways)
        collected = []
        for member in list(ways):
            left.remove(member)
            onwards = {end: summaries for end, summaries in ways[member].items() if end in left}
            back = {start: ways[start][member] for start in left if member in ways[start]}
            collected.append(compiler.Eliminated(member, onwards, back))
        return collected

    patch.setattr(compiler, "eliminate", unjoined)


def _ways_through_the_rest_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    def direct(members: Sequence[int], rest: Sequence[int], ways: Sequence[Mapping[int, Any]]) -> Any:
        return {start: {end: ways[start][end] for end in ways[start] if end in members and end != start} for start in members}

    patch.setattr(compiler, "direct_ways", direct)


def _compositions_go_the_wrong_way(patch: pytest.MonkeyPatch) -> None:
    def first_only(into: Any, first: Iterable[Any], second: Iterable[Any]) -> None:
        into.extend(first)

    patch.setattr(compiler, "compose", first_only)


def _negative_counts_are_frontiers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(engine, "_first_positive", lambda heap, counts: heap[0])


def _jumps_over_zero_are_missed(patch: pytest.MonkeyPatch) -> None:
    update_at = engine.PartialTracker.update_at

    def from_zero_or_to_it(self: Any, index: int, time: Any, diff: int) -> None:
        counts, crossed = self._entries[index][3:]
        noted = len(crossed)
        update_at(self, index, time, diff)
        if len(crossed) > noted and counts.get(crossed[-1], 0) not in (0, diff):
            crossed.pop()

    patch.setattr(engine.PartialTracker, "update_at", from_zero_or_to_it)


def _sums_are_projected(patch: pytest.MonkeyPatch) -> None:
    project = subgraph_builder.SubgraphBuilder._project

    def counted(self: Any, summaries: Any) -> Any:
        peers, self.subgraph.peers = self.subgraph.peers, 1
        try:
            return project(self, summaries)
        finally:
            self.subgraph.peers = peers

    patch.setattr(subgraph_builder.SubgraphBuilder, "_project", counted)


def _outer_times_are_rounded_up(patch: pytest.MonkeyPatch) -> None:
    init = count_sinks.FrontierProjection.__init__

    def late(self: Any, tracker: Any, outputs: int, outward: Any, numbers: Any, to_outer: Callable[[Any], Any]) -> None:
        init(self, tracker, outputs, outward, numbers, lambda time: to_outer(time) + (time[1] > 0))

    patch.setattr(count_sinks.FrontierProjection, "__init__", late)


def _projections_miss_losses(patch: pytest.MonkeyPatch) -> None:
    update_at = count_sinks.FrontierProjection.update_at

    def gains_only(self: Any, index: int, time: Any, diff: int) -> None:
        if diff > 0:
            update_at(self, index, time, diff)
        else:
            self._tracker.update_at(index, time, diff)

    patch.setattr(count_sinks.FrontierProjection, "update_at", gains_only)


def _statements_are_split(patch: pytest.MonkeyPatch) -> None:
    flush = ProgressExchange.flush

    def losses_first(self: Any) -> Any:
        gains = {key: diff for key, diff in self.changes.counts.items() if diff > 0}
        losses = {key: diff for key, diff in self.changes.counts.items() if diff < 0}
        if gains and losses:
            self.changes = ChangeBatch(losses.items())
            batch = flush(self)
            self.changes = ChangeBatch(gains.items())
            return batch
        return flush(self)

    patch.setattr(ProgressExchange, "flush", losses_first)


def _groups_get_back_what_they_sent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(exchange, "_without", lambda total, part: total)


def _received_progress_is_not_forwarded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(exchange._GroupSums, "receive", lambda self, place, updates: None)


def _merged_batches_lose_the_last(patch: pytest.MonkeyPatch) -> None:
    def first(self: Any, later: Sequence[Any]) -> Any:
        return ProgressBatch(self.sender, self.sequence, self.updates, self.count + sum(batch.count for batch in later))

    patch.setattr(ProgressBatch, "merged", first)


def _one_element_is_enough(patch: pytest.MonkeyPatch) -> None:
    advance = Lattice.advance
    patch.setattr(Lattice, "advance", lambda self, time, frontier: advance(self, time, frontier[:1]))


def _bounds_are_upper(patch: pytest.MonkeyPatch) -> None:
    def upper(self: Any, time: Any, frontier: Sequence[Any]) -> Any:
        for element in frontier:
            time = self.lub(time, element)
        return time

    patch.setattr(Lattice, "advance", upper)


def _no_further_times(patch: pytest.MonkeyPatch) -> None:
    for module in (reductions, reduce_inputs):
        patch.setattr(module, "counts_at", lambda entries, time, lub, later: aggregates_at(entries, time, lub, set()))


def _joins_forget_the_other_time(patch: pytest.MonkeyPatch) -> None:
    begin = trace_joins._Join.__init__

    def hasty(self: Any, *arguments: Any) -> None:
        begin(self, *arguments)
        self._tactic.lub = lambda time, other: time

    patch.setattr(trace_joins._Join, "__init__", hasty)


def _joins_hold_the_wrong_side(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(trace_joins._Join, "_hold", lambda self, other: list(self._ports[1 - other].elements) if self._ports else [])


def _joins_meet_twice(patch: pytest.MonkeyPatch) -> None:
    pairs = trace_joins.PairTactic.pairs

    def eager(self: Any, time: Any, delta: Any, mine: Any, *arguments: Any) -> Any:
        mine.see(delta, time)
        return pairs(self, time, delta, mine, *arguments)

    patch.setattr(trace_joins.PairTactic, "pairs", eager)


def _compaction_loses_an_entry(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(compaction_frontier, "compacted", lambda *arguments: compacted(*arguments)[:-1])


aggregates_at: Final = aggregates.counts_at

FAULTS: Final = [
    Fault("a contracted count does not advance", "frontiers", _shifts_are_forgotten),
    Fault("counts that may be negative are contracted", "frontiers", _negative_counts_are_contracted),
    Fault("nothing comes back through a feedback set", "frontiers", _nothing_comes_back),
    Fault("an eliminated member leaves no ways", "frontiers", _nothing_is_joined),
    Fault("ways through the rest are forgotten", "frontiers", _ways_through_the_rest_are_forgotten),
    Fault("a composition is its first part", "frontiers", _compositions_go_the_wrong_way),
    Fault("a negative count holds a frontier", "frontiers", _negative_counts_are_frontiers),
    Fault("a count that jumps over zero changes nothing", "frontiers", _jumps_over_zero_are_missed),
    Fault("sums of counts are projected", "nestings", _sums_are_projected),
    Fault("times that leave are rounded up", "nestings", _outer_times_are_rounded_up),
    Fault("a projection misses losses", "nestings", _projections_miss_losses),
    Fault("a statement is split", "exchanges", _statements_are_split),
    Fault("a group gets back what it sent", "exchanges", _groups_get_back_what_they_sent),
    Fault("received progress is not forwarded", "exchanges", _received_progress_is_not_forwarded),
    Fault("a merged batch has lost a part", "exchanges", _merged_batches_lose_the_last, merge=True),
    Fault("a time advances by one element of a frontier", "compactions", _one_element_is_enough),
    Fault("a time advances beyond the frontier", "compactions", _bounds_are_upper),
    Fault("a compacted trace has other accumulations", "reductions", _bounds_are_upper),
    Fault("bounds with earlier times are not interesting", "reductions", _no_further_times),
    Fault("a pair has the time of one of its halves", "joins", _joins_forget_the_other_time),
    Fault("a trace is held by its own side of a join", "joins", _joins_hold_the_wrong_side),
    Fault("a change meets those of its own time twice", "joins", _joins_meet_twice),
    Fault("a compacted trace of a join has other accumulations", "joins", _bounds_are_upper),
    Fault("compaction loses an entry", "reductions", _compaction_loses_an_entry),
]
