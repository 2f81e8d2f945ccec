"""Logistic regression with an all-reduce in a loop: is a Debian package a game or a tool?

Each of two workers has half of the packages. In each round every worker computes the gradient of its half, ``all_reduce``
sums the gradients, and all workers take the same step. The loop ends when the gradient is small, on all workers in the same
round. The weights are then compared with those of the same descent without workers.
"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import numpy.typing as npt

import timely
from timely.cli.debian import packages
from timely.operators import all_reduce

Array = npt.NDArray[np.float64]

PENALTY = 1e-3
"""The penalty on the squared weights, which makes the optimum unique."""

ENOUGH = 1e-3
"""The loop ends when no entry of the gradient is larger."""


def read() -> tuple[list[str], Array, Array]:
    """The 100 most frequent words, the words of each package, and whether the package is a game."""
    rows = [row for row in packages().to_pylist() if row["section"] in ("games", "utils")]
    described = [set(re.findall(r"[a-z]{3,}", row["description"].lower())) for row in rows]
    counts = Counter(word for words in described for word in words)
    words = sorted(sorted(counts), key=lambda word: -counts[word])[:100]
    has = np.array([[1.0, *(word in some for word in words)] for some in described])
    return ["(always)", *words], has, np.array([float(row["section"] == "games") for row in rows])


def slope(weights: Array, has: Array, is_game: Array) -> Array:
    """The gradient of the negative log-likelihood, summed over the packages."""
    gradient: Array = has.T @ (1 / (1 + np.exp(-(has @ weights))) - is_game)
    return gradient


def step(weights: Array, total: Array, packages: int, length: float) -> tuple[Array, bool]:
    """The weights after one step, and whether the gradient was small enough to stop there."""
    gradient = total / packages + PENALTY * weights
    return weights - length * gradient, float(np.abs(gradient).max()) <= ENOUGH


def step_length(has: Array) -> float:
    """The longest safe step: the inverse of the greatest curvature."""
    return float(1 / (np.linalg.norm(has, 2) ** 2 / len(has) / 4 + PENALTY))


def learn(has: Array, is_game: Array, length: float, workers: int) -> tuple[Array, int]:
    """The weights and the number of rounds, with ``workers`` workers."""

    def program(worker: timely.Worker) -> tuple[Array, int]:
        mine, games = has[worker.index :: worker.peers], is_game[worker.index :: worker.peers]
        here = np.zeros(has.shape[1])  # the weights, equal on all workers in every round
        rounds = 0

        def take(total: Array) -> list[str]:
            nonlocal here, rounds
            here, enough = step(here, total, len(has), length)
            rounds += 1
            return [] if enough else ["again"]

        with worker.dataflow(int) as scope:
            start = scope.to_stream(["begin"])
            with scope.iterative("descent") as loop:
                handle, again = loop.feedback()
                gradients = start.enter(loop).concat(again).map(lambda _: slope(here, mine, games))
                gradients.apply(all_reduce, np.add).flat_map(take).connect_loop(handle)
        worker.run()
        return here, rounds

    found = timely.execute(program, workers=workers)
    assert all(np.array_equal(weights, found[0][0]) for weights, _ in found)
    return found[0]


def alone(has: Array, is_game: Array, length: float) -> tuple[Array, int]:
    """The same without workers."""
    weights, rounds, enough = np.zeros(has.shape[1]), 0, False
    while not enough:
        weights, enough = step(weights, slope(weights, has, is_game), len(has), length)
        rounds += 1
    return weights, rounds


def main() -> None:
    words, has, is_game = read()
    length = step_length(has)
    weights, rounds = learn(has, is_game, length, workers=2)
    expected, expected_rounds = alone(has, is_game, length)
    assert rounds == expected_rounds
    assert np.allclose(weights, expected, rtol=0, atol=1e-9)
    right = ((has @ weights > 0) == (is_game > 0)).mean()
    order = np.argsort(weights)
    print(f"{len(has)} packages, {rounds} rounds, {right:.0%} told right")
    print("game:", *(words[i] for i in order[:-9:-1]))
    print("tool:", *(words[i] for i in order[:8]))


if __name__ == "__main__":
    main()
