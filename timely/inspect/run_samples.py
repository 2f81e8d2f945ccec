"""``RunSamples``: how a run went, in a bounded number of samples: the sparklines of the live page.

When there is no more room, every second sample is dropped: the whole run stays covered, at half the resolution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

_MOST: Final = 240
"""Samples of a run, at most."""

_EVERY: Final = 1.0
"""Least seconds between two samples at first."""


@attrs.define(eq=False)
class _Series:
    """The samples of one run, and the least seconds between two."""

    every: float = _EVERY
    samples: list[dict[str, Any]] = attrs.field(factory=list)

    def add(self, sample: dict[str, Any]) -> None:
        if self.samples and sample["at"] - self.samples[-1]["at"] < self.every:
            return
        self.samples.append(sample)
        if len(self.samples) > _MOST:
            self.samples = self.samples[::2]
            self.every *= 2


class RunSamples:
    """Keeps samples of the runs that a page shows, and forgets those of runs that it no longer shows.

    >>> kept = RunSamples()
    >>> run = {"key": "a", "over": False, "workers": [{"worker": 0, "memory": 7}], "dataflows": []}
    >>> for at in range(1000):
    ...     kept.add([run], float(at))
    >>> samples = kept.of(run)
    >>> len(samples) <= 240, samples[0]["at"], samples[-1]["at"] >= 992, samples[0]["workers"]
    (True, 0.0, True, {'0': [7, 0]})
    """

    def __init__(self) -> None:
        self._series: dict[str, _Series] = {}

    def add(self, runs: Sequence[Mapping[str, Any]], at: float) -> None:
        """Take a sample of each run that is not over; of one that ended, the end."""
        self._series = {run["key"]: self._series.get(run["key"]) or _Series() for run in runs}
        for run in runs:
            series = self._series[run["key"]]
            if not run["over"]:
                series.add(_sample(run, at))
            elif not (series.samples and series.samples[-1]["over"]):
                series.samples.append(_sample(run, at))

    def of(self, run: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the samples of a run."""
        series = self._series.get(run["key"])
        return [] if series is None else list(series.samples)


def _sample(run: Mapping[str, Any], at: float) -> dict[str, Any]:
    """Return what is drawn over time: of workers memory and seconds in operators; of dataflows what ``_flow`` returns."""
    flows = run["dataflows"]
    return {
        "at": round(at, 2),
        "over": run["over"],
        "workers": {
            str(worker["worker"]): [
                worker["memory"],
                round(sum(row["by_worker"][place][1] for flow in flows for row in flow["operators"]), 3),
            ]
            for place, worker in enumerate(run["workers"])
        },
        "dataflows": {str(flow["number"]): _flow(flow) for flow in flows},
    }


def _flow(flow: Mapping[str, Any]) -> list[int | None]:
    """Return the records read by all operators, the epochs that the frontier is behind, and the unread records."""
    return [sum(done[2] for row in flow["operators"] for done in row["by_worker"]), flow["lag"], flow["unread"]]
