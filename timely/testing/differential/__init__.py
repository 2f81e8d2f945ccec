"""Tests of incremental collections: runs on several workers, in any order of arrival, compared with a function of dicts."""

from timely.testing.differential.conditions import (
    Containers,
    forced_compaction,
    small_columns,
    tiny_memory,
    updates_in_traces,
)
from timely.testing.differential.operator_checks import (
    Case,
    Counts,
    Oracle,
    accumulated,
    cases,
    check_changes,
    check_operator,
    few_times,
    grid,
)
from timely.testing.differential.runs import Build, Change, Cluster, columns_of, run, run_resumed

__all__ = [
    "Build",
    "Case",
    "Change",
    "Cluster",
    "Containers",
    "Counts",
    "Oracle",
    "accumulated",
    "cases",
    "check_changes",
    "check_operator",
    "columns_of",
    "few_times",
    "forced_compaction",
    "grid",
    "run",
    "run_resumed",
    "small_columns",
    "tiny_memory",
    "updates_in_traces",
]
