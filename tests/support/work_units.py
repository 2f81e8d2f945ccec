"""Which test files run in one process, where several processes share the tests: those that start Spark's Java make three units.

A start takes 8 s of processor time, and what Java has compiled is lost with it. One unit would run for longer than all else does.
"""

from __future__ import annotations

import re
from pathlib import Path

STARTS = re.compile(r"\bsession: SparkSession|\b(?P<programs>spark_programs: SparkPrograms)|>>> .*\blocal_session\(")
STREAMS = re.compile("foreach_epoch|maintain|spark.streams")


def work_unit(root: Path, test: str) -> str:
    """Return the unit of a test, by its id: mostly its file."""
    file = test.split("::")[0]
    text = (root / file).read_text(encoding="utf-8")
    starts = STARTS.search(text)
    folders = Path(file).parts
    if starts is None or "soak" in folders or "cluster" in folders:  # sessions of their own
        return file
    if starts["programs"]:
        return "programs with a Spark session"
    return "streams on Spark" if STREAMS.search(text) else "Spark"
