"""``execute(hosts=...)``: processes that only share a host list and a credentials file find each other, or say what is wrong."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import timely
from tests.worker.processes import python
from tests.worker.test_spawn import divide
from timely import AuthenticationError, ConfigurationError, OperatorError, PeerLostError
from timely.cli import main

SCRIPT = """
import json, sys
import timely

def program(worker):
    with worker.dataflow() as scope:
        counted = scope.to_stream(["a", "b", "c", "a"], on="each").value_counts().capture()
    worker.run()
    return worker.index, worker.peers, [record for _, batch in counted.extract() for record in batch]

if __name__ == "__main__":
    timely.__version__ = sys.argv[2]
    try:
        print(json.dumps(timely.execute(program, **json.loads(sys.argv[1]))))
    except timely.TimelyError as error:
        print(json.dumps([type(error).__name__, str(error)]))
"""


def ports(number: int) -> list[str]:
    """Addresses on this machine on which nobody listens."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)]
        return [f"127.0.0.1:{listener.getsockname()[1]}" for listener in listeners]


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("credentials") / "run.pem"
    assert main(["credentials", str(path)]) == 0
    return str(path)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the script in a process of its own."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with ExitStack() as stack:

        def start(
            version: str = timely.__version__, environment: dict[str, str] | None = None, **arguments: Any
        ) -> subprocess.Popen[str]:
            process = python(str(script), json.dumps(arguments), version, environment=environment or {})
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start


def printed(process: subprocess.Popen[str]) -> Any:
    return json.loads(process.communicate()[0])


def on_hosts(program: Callable[[timely.Worker], Any], number: int, secret: str, **more: Any) -> list[Future[list[Any]]]:
    """Run a program on several hosts, each a thread of this process."""
    hosts = ports(number)

    def run(index: int) -> list[Any]:
        return timely.execute(program, hosts=hosts, index=index, credentials=secret, **more)

    with ThreadPoolExecutor(number) as pool:
        return [pool.submit(run, index) for index in reversed(range(number))][::-1]


def total(worker: timely.Worker) -> list[int]:
    """Sum up 1 and 2 of each worker, at worker 0."""
    with worker.dataflow() as scope:
        seen = scope.to_stream([1, 2], on="each").exchange(lambda x: 0).capture()
    worker.run()
    return [sum(batch) for _, batch in seen.extract()]


# -- runs --------------------------------------------------------------------------------------------------------------


def test_two_processes_count_together(start: Callable[..., subprocess.Popen[str]], secret: str) -> None:
    hosts = ports(2)
    processes = [start(hosts=hosts, index=index, workers=2, credentials=secret) for index in range(2)]
    collected = [printed(process) for process in processes]
    assert [[(worker, peers) for worker, peers, _ in one] for one in collected] == [[(0, 4), (1, 4)], [(2, 4), (3, 4)]]
    assert sorted(record for one in collected for *_, records in one for record in records) == [["a", 8], ["b", 4], ["c", 4]]


def test_the_environment_has_the_defaults(start: Callable[..., subprocess.Popen[str]], secret: str, tmp_path: Path) -> None:
    file = tmp_path / "hosts.txt"
    one, other = ports(2)
    file.write_text(f"# the machines\n{one}  # first\n\n  {other}\n")
    common = {"TIMELY_CREDENTIALS": secret, "TIMELY_WORKERS": "2"}
    processes = [
        start(environment=common | {"TIMELY_HOSTS": str(file), "TIMELY_INDEX": "0"}),
        start(environment=common | {"TIMELY_HOSTS": f"{one}, {other}", "TIMELY_INDEX": "1"}),
    ]
    assert [[worker for worker, *_ in printed(process)] for process in processes] == [[0, 1], [2, 3]]


@pytest.mark.parametrize("progress", ["direct", "process", "central", "tree"])
def test_three_hosts_in_any_order(secret: str, progress: str) -> None:
    collected = [one.result() for one in on_hosts(total, 3, secret, workers=2, progress=progress)]
    assert collected == [[[18], []], [[], []], [[], []]]


def test_one_host_runs_alone(secret: str) -> None:
    assert timely.execute(total, hosts=ports(1), index=0, credentials=secret) == [[3]]


def test_one_run_after_another_on_the_same_ports(secret: str) -> None:
    hosts = ports(2)

    def both(index: int) -> list[Any]:
        return [timely.execute(total, hosts=hosts, index=index, credentials=secret) for _ in range(3)]

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(both, range(2))) == [[[[6]]] * 3, [[[]]] * 3]


def test_strangers_are_refused_and_the_run_goes_on(secret: str) -> None:
    hosts = ports(2)
    host, port = hosts[0].split(":")
    with ThreadPoolExecutor(2) as pool:
        zero = pool.submit(timely.execute, total, hosts=hosts, index=0, credentials=secret)
        while not zero.done():
            try:
                stranger = socket.create_connection((host, int(port)))
                break
            except ConnectionRefusedError:  # it does not listen yet
                continue
        with stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" * 20)
            one = pool.submit(timely.execute, total, hosts=hosts, index=1, credentials=secret)
            assert (zero.result(), one.result()) == ([[6]], [[]])


def test_the_command_runs_on_hosts(secret: str, tmp_path: Path) -> None:
    (tmp_path / "identity.py").write_text("def build(scope, rows):\n    return {'rows': rows.exchange('key')}\n")
    pq.write_table(pa.table({"key": list(range(100))}), tmp_path / "rows.parquet", row_group_size=10)
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("\n".join(ports(2)))
    timely_run = ["-m", "timely.cli", "run", str(tmp_path / "identity.py"), "--credentials", secret]
    timely_run += ["--hosts", str(hosts), "--input", f"rows={tmp_path / 'rows.parquet'}"]
    processes = [
        python(*timely_run, "--index", str(index), "--output", f"rows={tmp_path / str(index)}.parquet") for index in range(2)
    ]
    for process in processes:
        process.communicate()
    assert [process.returncode for process in processes] == [0, 0]
    parts = [pq.read_table(tmp_path / f"{index}.parquet")["key"].to_pylist() for index in range(2)]
    assert all(parts)
    assert sorted(key for part in parts for key in part) == list(range(100))


# -- failures ----------------------------------------------------------------------------------------------------------


def test_an_error_on_one_host_ends_the_others(secret: str) -> None:
    zero, one = on_hosts(divide, 2, secret)
    with pytest.raises(OperatorError, match="on worker 1 raised ZeroDivisionError"):
        one.result()
    with pytest.raises(PeerLostError, match="worker 1"):
        zero.result()


def test_a_process_that_dies_is_a_lost_peer(secret: str) -> None:
    hosts = ports(2)
    dying = (
        "import os, sys, timely\n"
        "timely.execute(lambda worker: os._exit(3), hosts=sys.argv[1], index=1, credentials=sys.argv[2])\n"
    )
    with python("-c", dying, ",".join(hosts), secret), pytest.raises(PeerLostError, match="worker 1 has gone"):
        timely.execute(total, hosts=hosts, index=0, credentials=secret)


def test_hosts_that_do_not_answer_are_named(secret: str) -> None:
    hosts = ports(3)
    named = rf"host 1 \({hosts[1]}\) waited .* for host 0 \({hosts[0]}\) .*refused; host 2 \({hosts[2]}\) has not connected"
    with pytest.raises(PeerLostError, match=named):
        timely.execute(total, hosts=hosts, index=1, credentials=secret, patience=0.01)


def test_other_credentials_are_refused(start: Callable[..., subprocess.Popen[str]], secret: str, tmp_path: Path) -> None:
    hosts, other = ports(2), str(tmp_path / "other.pem")
    assert main(["credentials", other]) == 0
    zero = start(hosts=hosts, index=0, credentials=secret)
    with pytest.raises(AuthenticationError, match=r"host 1 .* and host 0 .* do not trust each other.* copy one"):
        timely.execute(total, hosts=hosts, index=1, credentials=other)
    assert zero.poll() is None  # it still waits for the right one
    timely.execute(total_of_words, hosts=hosts, index=1, credentials=secret)
    assert len(printed(zero)) == 1


def total_of_words(worker: timely.Worker) -> None:
    """As the script's program."""
    with worker.dataflow() as scope:
        scope.to_stream(["a"], on="each").value_counts().capture()
    worker.run()


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"workers": 3}, "host 1 .* has workers=3, and host 0 .* has workers=2"),
        ({"known": 3}, "host 1 .* has hosts=3, and host 0 .* has hosts=2"),
        ({"version": "2"}, f"host 1 .* has timely='2', and host 0 .* has timely='{timely.__version__}'"),
        ({"progress": "central"}, "host 1 .* has progress='central', and host 0 .* has progress='direct'"),
    ],
)
def test_both_sides_name_what_differs(
    start: Callable[..., subprocess.Popen[str]], secret: str, other: dict[str, Any], message: str
) -> None:
    hosts, known = ports(3), other.get("known", 2)
    more = {name: value for name, value in other.items() if name != "known"}
    common = {"workers": 2, "credentials": secret}
    zero = start(**common, index=0, hosts=hosts[:2])
    one = start(**common | more, index=1, hosts=hosts[:known])
    back = re.sub(r"(host 1 .*), and (host 0 .*)", r"\2, and \1", message)
    for process, expected in ((zero, back), (one, message)):
        kind, text = printed(process)
        assert kind == "ConfigurationError"
        assert re.search(expected, text)


def test_lists_in_another_order(secret: str) -> None:
    one, two, three = ports(3)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(timely.execute, total, hosts=[one, two, three], index=1, credentials=secret)
        second = pool.submit(timely.execute, total, hosts=[two, one, three], index=2, credentials=secret)
        for each in (first, second):
            with pytest.raises(ConfigurationError, match="give all hosts the same list"):
                each.result()


# -- arguments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"processes": 2}, r"processes=2 with hosts=\['a:1', 'b:2'\]: each host runs one process.* more workers"),
        ({"index": None}, "index=None: give each host's process its place among the 2 hosts"),
        ({"index": 2}, "index=2: give each"),
        ({"hosts": None}, "index=0 without hosts: give hosts="),
        ({"credentials": None}, "hosts without credentials: make a file by timely credentials FILE"),
        ({"credentials": "nowhere.pem"}, "credentials in nowhere.pem cannot be read: .*No such file"),
        ({"hosts": ["a:1", "a:1"]}, "give each host of the run once"),
        ({"hosts": []}, "give each host of the run once"),
        ({"hosts": ["a"]}, "'a' is no host of a run: give it as 'host:port'"),
        ({"hosts": ["a:0"]}, "with a port from 1 to 65535"),
        ({"hosts": "nowhere"}, "hosts='nowhere' is no file with one 'host:port' on each line"),
        ({"patience": 0}, "patience=0: give the seconds"),
    ],
)
def test_arguments_that_are_not_valid(secret: str, arguments: dict[str, Any], message: str) -> None:
    valid: dict[str, Any] = {"hosts": ["a:1", "b:2"], "index": 0, "credentials": secret}
    with pytest.raises(ConfigurationError, match=message):
        timely.execute(total, **valid | arguments)


@pytest.mark.parametrize("variable", ["TIMELY_WORKERS", "TIMELY_INDEX"])
def test_variables_that_are_no_numbers(secret: str, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "two")
    with pytest.raises(ConfigurationError, match=f"the environment has {variable}='two': give a whole number"):
        timely.execute(total, hosts=["a:1"], credentials=secret)


def test_a_port_that_is_in_use(secret: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match="cannot listen there.*Check index=0"):
            timely.execute(total, hosts=[f"127.0.0.1:{port}"], index=0, credentials=secret)


def test_credentials_are_for_their_owner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.pem"
    assert main(["credentials", str(path)]) == 0
    assert path.stat().st_mode & 0o777 == 0o600
    assert main(["credentials", str(path)]) == 1
    assert "the credentials cannot be written: " in capsys.readouterr().err

    def run() -> None:
        timely.execute(total, hosts=["127.0.0.1:1"], index=0, credentials=path)

    path.chmod(0o640)
    with pytest.raises(ConfigurationError, match="other users may read the credentials"):
        run()
    path.chmod(0o600)
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:-2]))
    with pytest.raises(ConfigurationError, match="no certificate with its key"):
        run()
    path.write_text("\n".join([lines[0], "nonsense", *lines[2:]]))
    with pytest.raises(ConfigurationError, match="cannot be read"):
        run()
