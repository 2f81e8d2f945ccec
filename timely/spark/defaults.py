"""What a session's settings ``spark.timely.*`` say for all of its runs, where a program does not say otherwise.

The invariant: an argument wins over a setting, and a setting that nobody reads is refused, with the name that is nearest. A
checkpoint that a program only names is kept below ``spark.timely.checkpoint.dir``, at a place that the same program finds again
after a restart of its driver, and that no run of another application, function or name has.
"""

from __future__ import annotations

import difflib
import hashlib
import math
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

import attrs
from pyspark.sql import SparkSession

from timely.errors import ConfigurationError
from timely.memory import bytes_of
from timely.recovery.store import is_uri
from timely.spark.reporting import name_of
from timely.spark.stage_messages import SILENCE

PREFIX = "spark.timely."

_UNITS = {"": 1.0, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}

_NAMED_BY_SPARK = re.compile(
    r"pyspark-shell|Spark shell|Spark Connect server|Databricks Shell|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)
"""Names of applications that did not choose one: several programs have them, or one has another each time."""

_PLAIN = re.compile(r"(?!.*-[0-9a-f]{8}$)\w[\w.-]*", re.ASCII)
"""Texts that are the name of a folder as they are; others get a digest of themselves at the end."""


def _count(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]*", text):
        raise ValueError("an integer of 1 or more")
    return int(text)


def seconds(text: str) -> float:
    """Return the seconds of a length of time as Spark writes it; ``ValueError`` for what is none.

    >>> [seconds(text) for text in ("15s", "2min", "500ms", "3")]
    [15.0, 120.0, 0.5, 3.0]
    """
    parts = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.lower())
    value = float(parts[1]) * _UNITS.get(parts[2], math.nan) if parts else math.nan
    if not value > 0:
        raise ValueError("a length of time of more than nothing, such as 30s or 2min")
    return value


def _size(text: str) -> int:
    try:
        return bytes_of(text)
    except ConfigurationError:
        raise ValueError("bytes above 0, or a size such as 640MB or 2g") from None


def _switch(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def _directory(text: str) -> str:
    if not (text.startswith("/") or re.match(r"[A-Za-z][\w+.-]*://", text)):
        raise ValueError("an absolute path or a URI that the driver and all executors reach")
    return text.rstrip("/")


SETTINGS: Mapping[str, Callable[[str], Any]] = {
    "spark.timely.workers": _count,
    "spark.timely.memory": _size,
    "spark.timely.patience": seconds,
    "spark.timely.checkpoint.dir": _directory,
    "spark.timely.progress": _switch,
}
"""What reads the text of each setting that there is."""


@attrs.frozen
class RunDefaults:
    """The arguments that a session's settings stand in for. ``memory`` is in bytes, ``patience`` in seconds.

    ``application`` is the name that Spark knows it by.
    """

    workers: int | None = None
    memory: int | None = None
    patience: float = SILENCE
    checkpoint_dir: str | None = None
    application: str = ""

    @classmethod
    def of(cls, session: SparkSession) -> RunDefaults:
        """Return what the settings of a session say now.

        :class:`~timely.errors.ConfigurationError` for a name that begins with ``spark.timely.`` and is none of :data:`SETTINGS`,
        and for a value that cannot be.
        """
        values = {name: _read(name, session.conf.get(name)) for name in _names(session)}
        return cls(
            values.get("spark.timely.workers"),
            values.get("spark.timely.memory"),
            values.get("spark.timely.patience", SILENCE),
            values.get("spark.timely.checkpoint.dir"),
            str(session.conf.get("spark.app.name", "")),
        )

    def place(self, checkpoint: Any, kind: str, build: object) -> Any:
        """Return where a run keeps its checkpoints whose argument is ``checkpoint``; ``kind`` is ``run``, ``stream`` or such.

        A path or URI is returned as it is, and so is everything where ``spark.timely.checkpoint.dir`` is not set. Any other text
        names the run: its place is below that directory, by the application, the function and this name.
        :class:`~timely.errors.ConfigurationError` for an application without a name of its own.
        """
        if self.checkpoint_dir is None or not isinstance(checkpoint, str | os.PathLike):
            return checkpoint
        name = str(os.fspath(checkpoint))
        if not name or name.startswith((".", "/", "~")) or is_uri(name):
            return checkpoint
        if not self.application or _NAMED_BY_SPARK.fullmatch(self.application):
            raise ConfigurationError(
                f"checkpoint={name!r} names a run below {self.checkpoint_dir} (spark.timely.checkpoint.dir), where it is found"
                f" again by the name of the application. {self.application!r} is one that Spark gave it: set spark.app.name,"
                " always the same, when the session is made, or give a whole path or URI as checkpoint="
            )
        below = (self.application, f"{kind}-{name_of(build)}", name)  # one folder for a name, so that none is inside of another
        return "/".join((self.checkpoint_dir, *map(_folder, below)))


def _names(session: SparkSession) -> list[str]:
    """Return the names of the session's settings that are ours."""
    java = getattr(session.conf, "_jconf", None)
    if java is None:
        names = list(session.conf.getAll)
    else:  # three questions to Java instead of two for each setting that there is: 1 ms instead of 15
        names = str(java.getAll().keys().mkString("\n")).splitlines()
    ours = [name for name in names if name.startswith(PREFIX)]
    for name in ours:
        if name not in SETTINGS:
            (nearest,) = difflib.get_close_matches(name, SETTINGS, 1, 0.0)
            raise ConfigurationError(
                f"there is no setting {name}; the nearest is {nearest}. All are: {', '.join(sorted(SETTINGS))}"
            )
    return ours


def _read(name: str, text: str | None) -> Any:
    try:
        return SETTINGS[name](str(text).strip())
    except ValueError as error:
        raise ConfigurationError(f"the setting {name} must be {error}, not {text!r}") from None


def _folder(text: str) -> str:
    """Return the name of a folder for a text, another one for each text, in letters that every file system takes."""
    if _PLAIN.fullmatch(text):
        return text
    return f"{re.sub(r'[^a-zA-Z0-9_.-]', '_', text).lstrip('.')}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
