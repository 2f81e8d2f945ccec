"""``svd_plus_plus``: ratings factorized by stochastic gradient descent, with what else was rated as implicit feedback."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timely.dataflow import OperatorInfo, Stream
from timely.errors import ConfigurationError, SchemaError
from timely.graphs.graphframes.pregel.bulk_synchronous import StepProgram, Steps, bulk_synchronous
from timely.graphs.graphframes.pregel.graph_partition import GraphPartition, partitioned, result_batch
from timely.graphs.stages.priorities import mixed, value_hashes
from timely.graphs.structures.arrays import Column, Floats
from timely.operators.type_variables import T

Matrix: TypeAlias = npt.NDArray[np.float64]

_UNIT: Final = 2.0**-53


@attrs.frozen(kw_only=True)
class Factorization:
    """The parameters: ``rank`` factors, bounds of predictions, rates of learning (of biases, factors), and regularizations."""

    rank: int = 10
    rounds: int = 2
    least: float = 0.0
    greatest: float = 5.0
    bias_rate: float = 0.007
    factor_rate: float = 0.007
    bias_penalty: float = 0.005
    factor_penalty: float = 0.015
    seed: int = 42

    def __attrs_post_init__(self) -> None:
        for name in ("rank", "rounds"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ConfigurationError(f"svd_plus_plus: {name} must be a whole number above 0, not {value!r}")
        if not self.least < self.greatest:
            raise ConfigurationError(f"svd_plus_plus: no rating is from {self.least!r} up to {self.greatest!r}")


def svd_plus_plus(edges: Stream[T, Any], vertices: Stream[T, Any], parameters: Factorization) -> Stream[T, Any]:
    """Return Arrow batches ``(node, explicit, implicit, bias, norm, error, ratings)``, of nodes without edges null.

    ``edges`` are batches ``(src, dst, weight)``: a user, an item, and the rating as float64. ``vertices`` are batches with a
    column ``node``. ``explicit`` and ``implicit`` are lists of float64: of a user the factors, without and with those of what was
    rated; of an item the factors, and those that it adds to whoever rated it. ``norm`` is 1 / sqrt(number of ratings). ``error``
    is the sum of the squared errors of predicting an item's ``ratings``, null where there are none. A round reads all ratings
    once, and then changes all nodes. Factors begin between 0 and 1, by ``seed`` and node.
    ``SchemaError`` for ratings that are null. Source: Koren, "Factorization meets the neighborhood" (2008).
    """
    return bulk_synchronous("svd++", [vertices, edges], _Learning(parameters))


@attrs.define(eq=False)
class _Model:
    """One worker's nodes; ``counts`` has how many ratings each has in all, and ``mean`` is that of all ratings of all workers."""

    part: GraphPartition
    ratings: Floats
    mean: float
    counts: Column
    explicit: Matrix
    implicit: Matrix
    bias: Floats
    done: int = 0

    @property
    def norm(self) -> Floats:
        norm: Floats = 1 / np.sqrt(np.maximum(self.counts, 1))
        return norm


@attrs.frozen
class _Learning(StepProgram[_Model]):
    _parameters: Factorization

    def begin(self, info: OperatorInfo, collected: list[list[Any]]) -> Steps[_Model]:
        part = yield from partitioned(info, *collected)
        ratings = _ratings(info, part)
        ones = np.ones_like(ratings)
        totals: Floats = np.sum((yield [np.array([ratings.sum(), len(ratings)])] * info.peers), axis=0)
        mean = float(totals[0] / max(totals[1], 1))
        table = np.column_stack((ratings, ones))
        sums, counts = (yield from _at_both(part, table, table)).T
        bias = np.where(counts > 0, sums / np.maximum(counts, 1) - mean, 0)
        explicit, implicit = _first_factors(part.nodes, self._parameters)
        return _Model(part, ratings, mean, counts.astype(np.int64), explicit, implicit, bias)

    def round(self, info: OperatorInfo, state: _Model) -> Steps[bool]:
        if state.done == self._parameters.rounds:
            return False
        part, rates, rank = state.part, self._parameters, self._parameters.rank
        sources, targets = part.sources, part.targets
        added = np.concatenate((yield part.to_mirrors(state.implicit)))
        with_feedback = state.explicit + state.norm[:, np.newaxis] * _sums(sources, added[targets], len(part))
        implicit = np.where(part.degrees()[:, np.newaxis] > 0, with_feedback, state.implicit)
        mirrors = np.concatenate((yield part.to_mirrors(np.column_stack((state.explicit, implicit, state.bias)))))
        user, user_bias = implicit[sources], state.bias[sources]
        item, item_added, item_bias = mirrors[targets, :rank], mirrors[targets, rank:-1], mirrors[targets, -1]
        error = state.ratings - self._predicted(state.mean + user_bias + item_bias, user, item)
        wrong = error[:, np.newaxis]
        penalty = rates.factor_penalty
        to_user = rates.factor_rate * (wrong * item - penalty * state.explicit[sources])
        to_item = rates.factor_rate * (wrong * user - penalty * item)
        to_added = rates.factor_rate * (wrong * state.norm[sources, np.newaxis] * item - penalty * item_added)
        bias_of_user = rates.bias_rate * (error - rates.bias_penalty * user_bias)
        bias_of_item = rates.bias_rate * (error - rates.bias_penalty * item_bias)
        changes = yield from _at_both(
            part, np.column_stack((to_user, to_added, bias_of_user)), np.column_stack((to_item, to_added, bias_of_item))
        )
        state.explicit = state.explicit + changes[:, :rank]
        state.implicit = implicit + changes[:, rank:-1]
        state.bias = state.bias + changes[:, -1]
        state.done += 1
        return True

    def _predicted(self, bias: Floats, user: Matrix, item: Matrix) -> Floats:
        predicted: Floats = np.clip(bias + (user * item).sum(axis=1), self._parameters.least, self._parameters.greatest)
        return predicted

    def end(self, info: OperatorInfo, state: _Model) -> Steps[Any]:
        part = state.part
        mirrors = np.concatenate((yield part.to_mirrors(np.column_stack((state.explicit, state.bias)))))
        sources, targets = part.sources, part.targets
        bias = state.mean + state.bias[sources] + mirrors[targets, -1]
        squares = (state.ratings - self._predicted(bias, state.implicit[sources], mirrors[targets, :-1])) ** 2
        table = np.column_stack((squares, np.ones_like(squares)))
        errors, rated = (yield from _at_both(part, np.zeros_like(table), table)).T
        known = state.counts > 0
        return result_batch(
            part,
            explicit=_lists(state.explicit, known),
            implicit=_lists(state.implicit, known),
            bias=pa.array(state.bias, mask=~known),
            norm=pa.array(state.norm, mask=~known),
            error=pa.array(errors, mask=rated == 0),
            ratings=pa.array(rated.astype(np.int64)),
        )


def _ratings(info: OperatorInfo, part: GraphPartition) -> Floats:
    if "weight" not in part.edge_attributes.column_names:  # where no worker has an edge
        return np.empty(0)
    weights = part.edge_attributes["weight"].combine_chunks()
    if weights.null_count:
        raise SchemaError(
            f"{info.path}: {weights.null_count} edges have no weight, and a rating must have a value: filter them out"
        )
    ratings: Floats = weights.to_numpy()
    return ratings


def _first_factors(nodes: pa.Array, parameters: Factorization) -> tuple[Matrix, Matrix]:
    """Return numbers between 0 and 1, the same for any number of workers."""
    names = mixed(value_hashes(nodes), parameters.seed)
    columns = [(mixed(names, number) >> np.uint64(11)) * _UNIT for number in range(1, 2 * parameters.rank + 1)]
    factors: Matrix = np.column_stack(columns)
    return factors[:, : parameters.rank], factors[:, parameters.rank :]


def _at_both(part: GraphPartition, to_source: Matrix, to_target: Matrix) -> Steps[Matrix]:
    """Return, for each vertex, the sum of the rows of ``to_source`` of the edges that start there, and of ``to_target``."""
    totals = _sums(part.sources, to_source, len(part))
    received = yield part.by_owner(_sums(part.targets, to_target, part.mirrors))
    for places, sums in zip(part.mirrored, received, strict=True):
        totals[places] += sums
    return totals


def _sums(groups: Column, rows: Matrix, count: int) -> Matrix:
    return np.stack([np.bincount(groups, column, count) for column in rows.T], axis=1).astype(np.float64)  # none are integers


def _lists(rows: Matrix, known: npt.NDArray[np.bool_]) -> pa.Array:
    lists = pa.FixedSizeListArray.from_arrays(rows.ravel(), rows.shape[1]).cast(pa.list_(pa.float64()))
    return lists.take(pa.array(np.arange(len(rows)), mask=~known))
