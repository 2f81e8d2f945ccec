"""``join``: a symmetric hash join (Wilschut and Apers 1991) over the times of a lattice.

Invariant: which pairs come out, and at which times, depends on the two streams alone, not on how their records interleave.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, overload

from timely.dataflow import Capability, InputPort, OperatorInfo, OutputPort, Stream, operator_name, records_of, scope_of
from timely.errors import GraphError, require_package
from timely.operators.generic import binary_frontier
from timely.operators.keyed.by_record import KeyKinds, by_first
from timely.operators.state_registration import ChangeLog, key_route
from timely.operators.type_variables import K, T, V, W
from timely.progress import lattice

State: TypeAlias = dict[Any, Any]
"""The records of one side: for each key times and values in turn, a tuple for one record and a list for more.

A tuple of one record is one block of memory instead of two, and the garbage collector lets it go if it holds numbers or texts.
"""


@overload
def join(
    stream: Stream[T, tuple[K, V]],
    other: Stream[T, tuple[K, W]],
    key: Callable[[K], Any] | None = None,
    *,
    name: str | None = None,
) -> Stream[T, tuple[K, tuple[V, W]]]: ...


@overload
def join(
    stream: Stream[T, Any], other: Stream[T, Any], *, on: str | Sequence[str], name: str | None = None
) -> Stream[T, Any]: ...


def join(
    stream: Stream[T, Any],
    other: Stream[T, Any],
    key: Callable[[Any], Any] | None = None,
    *,
    on: str | Sequence[str] | None = None,
    name: str | None = None,
) -> Stream[T, Any]:
    """Return ``(key, (left, right))`` for every two pairs ``(key, left)`` and ``(key, right)``, at the least upper bound of
    their times.

    Each side is stored until the other has ended. To join records of the same time only, put the time into the key. Pairs are
    exchanged by ``key(k)``, or by the key itself. ``TimestampError`` for times without least upper bounds, see
    ``timely.progress.lattice``.

    >>> import timely
    >>> def build(scope):
    ...     names = scope.to_stream([(1, "one"), (2, "two")])
    ...     return names.join(scope.to_stream([(2, "II"), (3, "III")]).delay(lambda x, time: 5))
    >>> timely.example(build)
    [(5, [(2, ('two', 'II'))])]

    With ``on`` the streams carry Arrow record batches, and the result is batches with the columns ``on``, the others of the
    left side and the others of the right side, one row for every two rows that agree in ``on``. Rows are exchanged by ``on``. A
    missing value or NaN agrees with nothing; dictionary-encoded columns come back plain. ``SchemaError`` for columns that both
    sides have and are not in ``on``, for keys of different types (whole numbers of any width agree, and so does text), and for
    a side whose batches differ in their columns.

    >>> import pyarrow as pa
    >>> def build(scope):
    ...     (orders, left), (prices, right) = scope.new_input(), scope.new_input()
    ...     orders.send_batch(pa.record_batch({"item": ["tea", "cup"], "n": [5, 1]}))
    ...     prices.send_batch(pa.record_batch({"price": [3, 4], "item": ["tea", "pot"]}))
    ...     return left.join(right, on="item")
    >>> timely.example(build)
    [(0, [('tea', 5, 3)])]
    """
    if on is not None:
        if key is not None:
            raise GraphError("join takes key=, a function of the key of pairs, or on=, columns of Arrow batches, not both")
        require_package("pyarrow", "join on columns", "arrow")
        from timely.operators.keyed.column_joins import join_columns  # imports NumPy and Arrow

        return join_columns(stream, other, on, operator_name("join", name))
    bound: Callable[[T, T], T] = lattice(scope_of(stream, "join").time).lub

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[..., object]:
        lefts: State = {}
        rights: State = {}

        def save() -> Iterator[tuple[bool, Any, list[tuple[T, Any]]]]:
            for flip, state in ((False, lefts), (True, rights)):
                for k, stored in state.items():
                    yield flip, k, list(zip(stored[::2], stored[1::2], strict=True))

        def load(items: Iterable[tuple[bool, Any, list[tuple[T, Any]]]]) -> None:
            for flip, k, values in items:
                (rights if flip else lefts).setdefault(k, []).extend(itertools.chain.from_iterable(values))

        kinds = KeyKinds(info)
        log = ChangeLog(info, save, load, lambda item: route(item[1]))

        def logic(left: InputPort[T, Any], right: InputPort[T, Any], output: OutputPort[T]) -> None:
            left_over, right_over = not left.frontier, not right.frontier
            for input, mine, others, flip in ((left, lefts, rights, False), (right, rights, lefts, True)):
                store = not (left_over if flip else right_over)
                for capability, batch in input:
                    if flip in kinds.missing:
                        kinds.see(flip, (k for k, _ in records_of(batch)))
                    matches = _match(capability.time, batch, mine if store else None, others, flip, bound)
                    if store and log.enabled:
                        for k, value in records_of(batch):
                            log.append((flip, k, [(capability.time, value)]))
                    for time, pairs in matches.items():
                        with capability.delayed(time) as later:
                            output.session(later).give_batch(pairs)
            if left_over and right_over and log.enabled:
                return  # a resumed run may have more: the log has it all in any case
            if right_over:
                lefts.clear()
            if left_over:
                rights.clear()

        return logic

    pact, route = by_first(key), key_route(key)
    return binary_frontier(stream, other, pact, pact, operator_name("join", name), constructor)


class _ByTime(dict[Any, Callable[[Any], None]]):
    """What adds a pair to those at the bound of ``time`` and the other record's time: each bound is computed once a batch."""

    __slots__ = ("_bound", "_found", "_time")

    def __init__(self, time: Any, bound: Callable[[Any, Any], Any], matches: dict[Any, list[Any]]) -> None:
        super().__init__()
        self._time, self._bound, self._found = time, bound, matches

    def __missing__(self, other: Any) -> Callable[[Any], None]:
        add = self[other] = self._found.setdefault(self._bound(self._time, other), []).append
        return add


def _match(time: T, batch: Any, mine: State | None, others: State, flip: bool, bound: Callable[[T, T], T]) -> dict[T, list[Any]]:
    """Return the pairs of a batch with the other side's records, by time; store the batch in ``mine``."""
    matches: dict[T, list[Any]] = {}
    add, records, partners = _ByTime(time, bound, matches), records_of(batch), others.get
    if mine is not None:
        put = mine.setdefault
        for key, value in records:
            entry = time, value
            stored = put(key, entry)
            if stored is not entry:
                if type(stored) is list:
                    stored += entry
                else:
                    mine[key] = [*stored, *entry]
    for key, value in records:
        stored = partners(key)
        if stored is not None:
            turns = iter(stored)
            for other_time in turns:
                other = next(turns)
                add[other_time]((key, (other, value) if flip else (value, other)))
    return matches
