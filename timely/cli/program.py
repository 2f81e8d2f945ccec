"""Programs by name: ``module:build``, the same ``build(scope, **inputs)`` that runs on Spark.

The module is a file or a dotted name; its own imports are found in the file's folder, or in the current one. A wrong name is
reported before anything runs.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import attrs

from timely import ScopeBuilder, Stream
from timely.errors import ConfigurationError


class Build(Protocol):
    """A program: called with a scope and a stream for each input, it returns its outputs by name."""

    def __call__(self, scope: ScopeBuilder[int], /, **inputs: Stream[int, Any]) -> Mapping[str, Stream[int, Any]] | None: ...


@attrs.frozen
class Program:
    """A loaded program; ``title`` is the name of its function and of its dataflow.

    ``schemas`` is ``OUTPUTS`` of its module: the columns of each output in Spark's notation.
    """

    name: str
    title: str
    build: Build
    schemas: Mapping[str, str]

    @property
    def folder(self) -> Path | None:
        """The folder of its module; ``None`` if the module is installed."""
        file = inspect.getsourcefile(inspect.unwrap(self.build))
        return None if file is None or "site-packages" in file else Path(file).resolve().parent

    @property
    def inputs(self) -> list[str]:
        """The names of the inputs of ``build``."""
        parameters = list(inspect.signature(self.build).parameters.values())[1:]
        return [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]

    @property
    def needed(self) -> list[str]:
        """The names of the inputs without a default."""
        parameters = inspect.signature(self.build).parameters
        return [name for name in self.inputs if parameters[name].default is inspect.Parameter.empty]

    def check_inputs(self, named: Mapping[str, object]) -> None:
        """Raise ``ConfigurationError`` unless ``build`` can be called with these inputs."""
        takes_any = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(self.build).parameters.values())
        missing, unknown = set(self.needed) - set(named), set() if takes_any else set(named) - set(self.inputs)
        if missing or unknown:
            wants = ", ".join(f"--input {name}=FILE" for name in self.inputs) or "no inputs"
            raise ConfigurationError(f"{self.name} takes {wants}; given were: {', '.join(named) or 'none'}")
        try:
            inspect.signature(self.build).bind(None, **named)
        except TypeError as error:
            raise ConfigurationError(
                f"{self.name} cannot be called with a scope, and its inputs by name ({error}): begin it as"
                f" def {self.title}({', '.join(['scope', *named])})"
            ) from error


def load(name: str) -> Program:
    """Return the program ``module:build``; the default function is ``build``.

    ``ConfigurationError`` if there is no such module, or no such function in it.
    """
    place, _, what = name.rpartition(":") if ":" in name else (name, "", "build")
    module = module_at(place)
    build = getattr(module, what, None)
    if not callable(build):
        known = ", ".join(sorted(key for key, value in vars(module).items() if inspect.isfunction(value))) or "nothing"
        raise ConfigurationError(f"{place} has no function {what!r} to build a dataflow with; it has {known}")
    try:
        inspect.signature(build)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"{place} has {what!r}, which does not say what it takes: give a function of Python") from error
    return Program(name, what, build, _schemas(place, getattr(module, "OUTPUTS", {})))


def _schemas(place: str, outputs: object) -> Mapping[str, str]:
    if isinstance(outputs, Mapping) and all(isinstance(text, str) for text in (*outputs, *outputs.values())):
        return outputs
    raise ConfigurationError(
        f"{place} has OUTPUTS = {outputs!r}: let it be a dictionary from the name of an output to its columns, such as"
        " {'degrees': 'node long, degree long'}"
    )


def module_at(place: str) -> ModuleType:
    """Return the module that a file, or a dotted name, is."""
    file = Path(place)
    if file.suffix != ".py":
        return _imported(place)
    if not file.is_file():
        raise ConfigurationError(f"there is no file {place!r}: give module:build, where module is a file or a dotted name")
    if "." in file.stem:
        raise ConfigurationError(f"{place!r} cannot be imported: give it a name without a dot before the .py")
    sys.path.insert(0, str(file.resolve().parent))
    module = _imported(file.stem)
    loaded = getattr(module, "__file__", None)
    if loaded is None or Path(loaded).resolve() != file.resolve():
        raise ConfigurationError(f"{place!r} cannot be imported: there is another module {file.stem!r} already; rename the file")
    return module


def _imported(name: str) -> ModuleType:
    unknown = f"there is no module {name!r}: give module:build, where module is a file or a dotted name"
    if not all(name.split(".")):
        raise ConfigurationError(unknown)  # a relative import
    if "" not in sys.path:
        sys.path.insert(0, "")  # a console script has its own folder there
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise ConfigurationError(f"module {name!r} needs {error.name!r}, which is not installed") from error
        raise ConfigurationError(unknown) from error
    except SyntaxError as error:
        raise ConfigurationError(f"module {name!r} cannot be read as Python: {error}") from error
