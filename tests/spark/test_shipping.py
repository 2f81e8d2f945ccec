"""Packages for executors that lack them, and what an executor says that still does.

White box: an executor without the library is a process that unpickles what a task would.
"""

from __future__ import annotations

import importlib.machinery
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pyspark.cloudpickle
import pytest
from pyspark.serializers import CloudPickleSerializer

import timely
from timely import spark as ts
from timely.errors import ConfigurationError
from timely.spark import shipping
from timely.spark.shipping import carried


class Driver:
    """A session and its context, as far as :func:`timely.spark.ship` uses them."""

    applicationId = "application"

    def __init__(self) -> None:
        self.sparkContext = self
        self.sent: list[str] = []

    def addPyFile(self, path: str) -> None:
        self.sent.append(path)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setattr(shipping, "_shipped", set())
    monkeypatch.setattr(shipping, "_made", [tmp_path])
    return Driver()


@pytest.fixture
def importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder from which modules can be imported."""
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    return folder


def run_isolated(archive: str, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a Python that has nothing but its own library and an archive."""
    start = f"import sys; sys.path.insert(0, {archive!r})\n"
    return subprocess.run([sys.executable, "-I", "-S", "-c", start + program], cwd="/", capture_output=True, text=True)


# -- sending -----------------------------------------------------------------------------------------------------------


def test_what_is_shipped_is_all_that_the_core_needs(driver: Any) -> None:
    assert ts.ship(driver) == list(shipping.NEEDED)
    program = """
import timely
def program(worker):
    with worker.dataflow(int) as scope:
        seen = scope.to_stream([1, 2]).map(lambda x: x + 1).capture()
    worker.run()
    return seen.extract()
print(timely.execute(program, workers=1), timely.__file__)
"""
    done = run_isolated(driver.sent[0], program)
    assert done.stderr == ""
    assert done.stdout.startswith("[[(0, [2, 3])]]")
    assert driver.sent[0] in done.stdout


def test_packages_and_modules_of_the_users_own(driver: Any, importable: Path) -> None:
    (importable / "alone.py").write_text("ONE = 1\n")
    package = importable / "several" / "deep"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text("TWO = 2\n")
    (package / "data.txt").write_text("three")
    import alone  # type: ignore[import-not-found]

    assert isinstance(alone, ModuleType)
    assert ts.ship(driver, alone, "several.deep") == [*shipping.NEEDED, "alone", "several"]
    done = run_isolated(driver.sent[0], "import alone, several.deep as d; print(alone.ONE + d.TWO)")
    assert (done.stdout, done.stderr) == ("3\n", "")
    with zipfile.ZipFile(driver.sent[0]) as archive:
        assert "several/deep/data.txt" in archive.namelist()


def test_the_same_is_sent_once_and_a_change_again(driver: Any, importable: Path) -> None:
    (importable / "changing.py").write_text("ONE = 1\n")
    ts.ship(driver, "changing")
    ts.ship(driver, "changing")
    assert len(driver.sent) == 1
    (importable / "changing.py").write_text("ONE = 2\n")
    ts.ship(driver, "changing")
    assert len(set(driver.sent)) == 2
    driver.applicationId = "another"
    ts.ship(driver, "changing")
    assert len(driver.sent) == 3


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("numpy", "compiled parts.*venv-pack.*spark.archives=.*PYSPARK_PYTHON"),
        ("pyarrow", "compiled parts"),
        ("sys", "a part of Python"),
        ("os.path", "a part of Python"),
        ("nowhere_to_be_found", "no module of this name"),
        ("__main__", "need not be shipped"),
        ("", "modules or their names"),
        (3, "modules or their names, not 3"),
    ],
)
def test_what_cannot_be_shipped(driver: Any, module: Any, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        ts.ship(driver, module)
    assert driver.sent == []


def test_a_single_compiled_module_cannot_be_shipped(driver: Any, importable: Path) -> None:
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    (importable / f"quick{suffix}").write_bytes(b"")
    with pytest.raises(ConfigurationError, match=f"'quick' cannot be shipped: it has compiled parts.*quick{suffix}"):
        ts.ship(driver, "quick")


# -- what an executor says ---------------------------------------------------------------------------------------------


def unpickled_alone(function: shipping.Function, prepare: str = "", *, archive: str = "") -> subprocess.CompletedProcess[str]:
    """Unpickle a function in a Python that has nothing but Spark's pickler and an archive, and call it."""
    content = CloudPickleSerializer().dumps(function)  # type: ignore[no-untyped-call]
    folder = str(Path(pyspark.cloudpickle.__file__).parent)
    pickler = (
        "import importlib.util, pickle, types\n"
        "sys.modules['pyspark'] = types.ModuleType('pyspark')\n"
        f"spec = importlib.util.spec_from_file_location('pyspark.cloudpickle', {folder + '/__init__.py'!r},"
        f" submodule_search_locations=[{folder!r}])\n"
        "sys.modules['pyspark.cloudpickle'] = module = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
    )
    return run_isolated(archive, f"{pickler}{prepare}\nprint(list(pickle.loads({content!r})(iter([1, 2]))))")


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    return done.stderr.strip().splitlines()[-2]  # the last one is for the driver


def test_an_executor_without_the_library_says_so() -> None:
    message = last_line(unpickled_alone(carried(lambda batches: batches, "timely through")))
    assert message.startswith("ImportError: the executor on ")
    assert sys.executable in message
    assert "cannot import timely: No module named 'timely'. Call timely.spark.ship(session) before run" in message


def test_an_executor_with_another_version_says_so(driver: Any) -> None:
    ts.ship(driver)
    function = carried(lambda batches: batches, "timely through")
    assert unpickled_alone(function, archive=driver.sent[0]).stdout == "[1, 2]\n"
    message = last_line(unpickled_alone(function, "import timely; timely.__version__ = '0.0.7'", archive=driver.sent[0]))
    assert f"has timely 0.0.7, and the driver {timely.__version__}: both must be the same" in message


def test_an_executor_without_a_module_of_the_user_says_which(driver: Any, importable: Path) -> None:
    (importable / "mine.py").write_text("def double(batches):\n    return (2 * batch for batch in batches)\n")
    import mine  # type: ignore[import-not-found]

    function = carried(mine.double, "timely mine")
    ts.ship(driver)
    message = last_line(unpickled_alone(function, archive=driver.sent[-1]))
    assert "cannot load the dataflow: ModuleNotFoundError: No module named 'mine'" in message
    assert "ship(session, 'mine')" in message
    ts.ship(driver, mine)
    assert unpickled_alone(function, archive=driver.sent[-1]).stdout == "[2, 4]\n"


def test_what_cannot_be_pickled_is_refused_on_the_driver() -> None:
    import threading

    lock = threading.Lock()
    with pytest.raises(ConfigurationError, match="to the executors: 'lock' cannot be pickled: make it inside build"):
        carried(lambda batches: iter([lock]), "timely locked")
