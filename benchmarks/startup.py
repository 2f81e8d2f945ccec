"""What it takes to open a run for very many workers: the driver's rendezvous, Spark's ``allGather``, and the workers' mesh.

A thousand *registrations* are real, their workers are not. Threads of a few processes dial the driver's server with the library's
own protocol and certificates, and wait for everybody's address. Workers of one process make a mesh, as many as there are file
descriptors for, and one worker of a thousand admits all its peers. ``allGather`` is that of real barrier tasks for as many as fit
into memory; for more, Spark's coordinator is asked as the tasks would ask it. One machine does everybody's work. On a cluster the
workers' share, which the notes say, is spread.

What comes before any of that is measured in new processes: ``import timely``, beside ``import numpy``, and the first dataflow.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import ssl
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import attrs

from benchmarks.measure import in_turn
from benchmarks.report import Row
from benchmarks.sizing_memory import held
from benchmarks.sizing_traffic import SHAPES
from timely.spark.registration import Registration
from timely.spark.rendezvous import Rendezvous
from timely.spark.stage_messages import HEARTBEAT, Invitation, Join, Peers, framed
from timely.worker.credentials import Identity, listener, make_identity, speaker
from timely.worker.mesh import RUN, Hello, connect_mesh, dial, open_listener

WORKERS = (10, 100, 1_000)
PROCESSES = 4
"""Processes that the workers are threads of."""

MESHES = (8, 32, 96)
"""Workers of the meshes that are complete: a process has both ends of each connection."""

GATHERS = (4, 16)
"""Barrier tasks that gather, each a Python process."""

STACK = 256 << 10
"""Bytes of a thread's stack: a thousand of the system's default size would be 8 GB of addresses."""


@attrs.frozen
class Opened:
    """How a run was opened: the seconds until the last worker had all addresses, and what the driver and the workers spent."""

    seconds: float
    driver: float
    """Seconds of the driver's processor time."""
    clients: float
    """Those of all workers."""
    memory: int
    """Bytes that the driver grew by at most."""


def register(workers: int) -> Opened:
    """Open a run for so many workers and wait until each has the addresses of all."""
    server = Rendezvous("127.0.0.1", "127.0.0.1")
    invitation = server.invitation(server.open_run(workers, patience=600))
    context = multiprocessing.get_context("spawn")
    shares = [range(place, workers, PROCESSES) for place in range(min(PROCESSES, workers))]
    pipes, processes = [], []
    for share in shares:
        mine, theirs = context.Pipe()
        process = context.Process(target=_clients, args=(invitation, share, theirs))
        process.start()
        pipes.append(mine)
        processes.append(process)
    for pipe in pipes:
        pipe.recv()  # its imports are done
    most, looking = [before := held()], threading.Event()

    def look() -> None:
        while not looking.wait(0.02):
            most[0] = max(most[0], held())

    watch = threading.Thread(target=look)
    watch.start()
    start, used = time.perf_counter(), time.process_time()
    for pipe in pipes:
        pipe.send("go")
    clients = sum(pipe.recv() for pipe in pipes)
    seconds, driver = time.perf_counter() - start, time.process_time() - used
    looking.set()
    watch.join()
    for pipe, process in zip(pipes, processes):
        pipe.send("leave")
        process.join()
    server.close()
    return Opened(seconds, driver, clients, (most[0] - before) << 10)


def _clients(invitation: Invitation, indices: range, pipe: Connection) -> None:
    """Register the workers with these indices, at the same time; report the processor time once all have all addresses."""
    threading.stack_size(STACK)
    met, leave = threading.Barrier(len(indices) + 1), threading.Event()
    failed: list[BaseException] = []

    def work(index: int) -> None:
        try:
            with Registration(invitation, index=index, generation=1, stage=1, timeout=600) as registration:
                assert len(registration.peers((f"10.0.{index >> 8}.{index & 255}", 40_000))) == invitation.workers
                met.wait()
                leave.wait()
                registration.done()
        except BaseException as error:
            failed.append(error)
            met.abort()

    threads = [threading.Thread(target=work, args=(index,)) for index in indices]
    pipe.send("ready")
    pipe.recv()
    start = time.process_time()
    for thread in threads:
        thread.start()
    try:
        met.wait()
    except threading.BrokenBarrierError:
        raise failed[0] from None
    pipe.send(time.process_time() - start)
    pipe.recv()
    leave.set()
    for thread in threads:
        thread.join()


def rendezvous_rows(sizes: tuple[int, ...]) -> list[Row]:
    """Open runs, and count what goes between the driver and its workers meanwhile."""
    rows = []
    hello, hello_back = handshake_bytes()
    for workers in sizes:
        opened = register(workers)
        note = f"the driver's processor {opened.driver:.2f} s, that of all workers {opened.clients:.2f} s"
        rows.append(Row(f"{workers} workers: rendezvous, s", opened.seconds, note=note))
        rows.append(Row(f"{workers} workers: rendezvous, MiB that the driver grows by at most", opened.memory / 2**20))
        peers = Peers([(f"10.0.{index >> 8}.{index & 255}", 40_000) for index in range(workers)])
        told = len(framed(peers))
        heard = len(framed(Join(1, ("10.0.0.1", 40_000), "node7.example.org, pid 123456")))
        name = f"{workers} workers: rendezvous, bytes to the driver and from it"
        rows.append(Row(name, workers * (hello + heard + hello_back + told), note=f"of them addresses {workers * told:,}"))
    rows.append(Row("a sign of life, bytes", len(HEARTBEAT), note="each second, each way, for each worker"))
    return rows


# -- the mesh ----------------------------------------------------------------------------------------------------------


def handshake_bytes() -> tuple[int, int]:
    """Return the bytes that a handshake, the hello and the welcome take: from who dials, and to it."""
    identity = make_identity("timely worker")
    ends = [(ssl.MemoryBIO(), ssl.MemoryBIO()) for _ in range(2)]
    client = speaker(identity, identity.certificate).wrap_bio(*ends[0], server_hostname="run")
    server = listener(identity, identity.certificate).wrap_bio(*ends[1], server_side=True)
    sent = [0, 0]

    def move(source: int) -> None:
        data = ends[source][1].read()
        sent[source] += len(data)
        ends[1 - source][0].write(data)

    missing = {0: client, 1: server}
    while missing:
        for place, end in list(missing.items()):
            try:
                end.do_handshake()
                del missing[place]
            except ssl.SSLWantReadError:
                pass
            move(place)
    client.write(Hello(bytes(RUN), 1, 1, 0).pack())
    move(0)
    server.write(b"welcome!")
    move(1)
    return sent[0], sent[1]


def mesh(workers: int) -> tuple[float, float]:
    """Connect so many workers with each other in this process; return the seconds and the processor time."""
    listeners = [open_listener("127.0.0.1") for _ in range(workers)]
    addresses = {index: listener.getsockname()[:2] for index, listener in enumerate(listeners)}
    identity = make_identity("timely worker")
    start, used = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(workers) as pool:
        made = list(pool.map(lambda index: connect_mesh(index, listeners[index], addresses, identity, 300.0), range(workers)))
    found = time.perf_counter() - start, time.process_time() - used
    assert all(len(sockets) == workers - 1 for sockets in made)
    for sock in (*(sock for sockets in made for sock in sockets.values()), *listeners):
        sock.close()
    return found


def one_of(workers: int) -> tuple[float, float, int, int]:
    """Have worker 0 of so many admit all others; return seconds, its processor time, and how many KiB and files it grows by."""
    identity = make_identity("timely worker")
    door = open_listener("127.0.0.1")
    address = door.getsockname()[:2]
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for place in range(PROCESSES):
        mine, theirs = context.Pipe()
        process = context.Process(target=_dial, args=(identity, address, range(1 + place, workers, PROCESSES), theirs))
        process.start()
        pipes.append(mine)
        processes.append(process)
    for pipe in pipes:
        pipe.recv()
    before, files = held(), len(os.listdir("/proc/self/fd"))
    start, used = time.perf_counter(), time.process_time()
    for pipe in pipes:
        pipe.send("go")
    sockets = connect_mesh(0, door, dict.fromkeys(range(workers), address), identity, 300.0)
    found = (
        time.perf_counter() - start,
        time.process_time() - used,
        held() - before,
        len(os.listdir("/proc/self/fd")) - files,
    )
    for pipe, process in zip(pipes, processes):
        pipe.send("leave")
        process.join()
    for sock in (*sockets.values(), door):
        sock.close()
    return found


def _dial(identity: Identity, address: tuple[str, int], indices: range, pipe: Connection) -> None:
    """Dial worker 0 as these workers, one after the other."""
    context = speaker(identity, identity.certificate)
    pipe.send("ready")
    pipe.recv()
    sockets = [dial(address, context, Hello(bytes(RUN), 0, index, 0), time.monotonic() + 300) for index in indices]
    pipe.recv()
    for sock in sockets:
        sock.close()


def mesh_rows(sizes: tuple[int, ...], workers: int) -> list[Row]:
    """Connect meshes, and one worker of very many."""
    rows = []
    there, back = handshake_bytes()
    rows.append(Row("a connection between workers, bytes until both know each other", there + back, note=f"{there} of who dials"))
    for each in sizes:
        seconds, used = mesh(each)
        pairs = each * (each - 1) // 2
        note = f"{pairs:,} connections, {used / pairs * 1e3:.2f} ms of processor time for both ends of one"
        rows.append(Row(f"{each} workers: mesh in one process, s", seconds, note=note))
    seconds, used, kib, files = one_of(workers)
    note = f"its processor {used:.2f} s, {kib / 1024:.1f} MiB, {files:,} files"
    rows.append(Row(f"{workers} workers: worker 0 admits all others, s", seconds, note=note))
    pairs = workers * (workers - 1) // 2
    rows.append(Row(f"{workers} workers: connections of the mesh", pairs, note="reckoned"))
    rows.append(Row(f"{workers} workers: bytes of the mesh's handshakes", pairs * (there + back), note="reckoned"))
    return rows


def mode_rows(workers: int) -> list[Row]:
    """Count the progress of one iteration of a barrier in each mode (``benchmarks.progress_traffic.model``)."""
    rows = []
    for shape in SHAPES:
        counted = shape.model(workers, 2, 3)
        messages, busiest = (n / counted.iterations for n in (counted.traffic.messages, counted.busiest))
        note = f"{counted.traffic.bytes / counted.iterations:,.0f} bytes, {busiest:,.0f} messages at the busiest worker"
        rows.append(Row(f"{workers} workers: messages of progress in an iteration, {shape.name}", messages, note=note))
    return rows


# -- allGather ---------------------------------------------------------------------------------------------------------

MESSAGE = "10.0.255.255:40000 " + 32 * "k"
"""What a worker would gather: its address and a key."""


def gather_rows(sizes: tuple[int, ...], workers: int) -> list[Row]:
    """Time ``allGather`` of real barrier tasks, and what Spark's coordinator in the driver does for so many that are not."""
    from pyspark import BarrierTaskContext
    from pyspark.sql import SparkSession

    from timely.spark import local_session

    active = SparkSession.getActiveSession()
    if active is not None:
        active.stop()
    session = local_session(max(sizes))
    message = MESSAGE

    def gather(batches: Any) -> Any:
        import pyarrow as pa

        context = BarrierTaskContext.get()
        context.barrier()  # all have started
        start = time.perf_counter()
        found = context.allGather(message)
        yield pa.record_batch({"s": [time.perf_counter() - start], "n": [len(found)]})

    rows = []
    try:
        for tasks in sizes:
            frame = session.range(tasks).repartition(tasks).mapInArrow(gather, "s double, n long", barrier=True)
            frame.collect()  # Python processes are forked
            start = time.perf_counter()
            found = frame.collect()
            whole = time.perf_counter() - start
            assert {row.n for row in found} == {tasks}
            note = f"the quickest {min(row.s for row in found):.2f} s; job with a barrier before it {whole:.2f} s"
            rows.append(Row(f"{tasks} tasks: allGather, slowest task, s", max(row.s for row in found), note=note))
        seconds, java = coordinator(session, workers)
        note = "asked as tasks ask it, without their wait of a second, within one Java"
        rows.append(Row(f"{workers} tasks: allGather, Spark's coordinator alone, s", seconds, note=note))
        rows.append(Row(f"{workers} tasks: allGather, bytes of the answers", java, note="as Java serializes them, of all tasks"))
    finally:
        session.stop()
    return rows


def coordinator(session: Any, workers: int) -> tuple[float, int]:
    """Ask Spark's coordinator of barrier stages for so many tasks; return the seconds, and the bytes of all answers."""
    jvm = session._jvm
    java = session.sparkContext._jsc.sc()
    kind = jvm.java.lang.Class
    field = kind.forName("org.apache.spark.SparkEnv").getDeclaredField("rpcEnv")  # py4j cannot look at that class as a whole
    field.setAccessible(True)
    endpoint = jvm.org.apache.spark.util.RpcUtils.makeDriverRef("barrierSync", java.conf(), field.get(java.env()))
    tag = jvm.scala.reflect.ClassTag.apply(kind.forName("[Ljava.lang.String;"))
    gather = getattr(getattr(jvm.org.apache.spark, "RequestMethod$"), "MODULE$").ALL_GATHER()
    stage = 1_000_000
    requests = [
        jvm.org.apache.spark.RequestToSync(workers, stage, 0, stage + task, 0, task, MESSAGE, gather) for task in range(workers)
    ]
    start = time.perf_counter()
    futures = [endpoint.ask(request, tag) for request in requests]
    while not futures[-1].isCompleted():
        time.sleep(0.001)
    seconds = time.perf_counter() - start
    answer = futures[-1].value().get().get()
    assert len(answer) == workers
    stream = jvm.java.io.ByteArrayOutputStream()
    out = jvm.java.io.ObjectOutputStream(stream)
    out.writeObject(answer)
    out.flush()
    return seconds, workers * int(stream.size())


# -- imports -----------------------------------------------------------------------------------------------------------

_FIRST = "import timely; timely.example(lambda scope: scope.to_stream([1]).map(str))"


def processor_time(program: str) -> float:
    """Return the seconds of processor time of a new Python that runs a program."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", program], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def import_rows(rounds: int) -> list[Row]:
    """Compare whole processes that import this library, or NumPy, or do nothing."""
    programs = {"timely": "import timely", "first": _FIRST, "numpy": "import numpy", "nothing": "pass"}
    found = in_turn({name: partial(processor_time, program) for name, program in programs.items()}, rounds)
    note = f"timely {found['timely']:.3f} s, NumPy {found['numpy']:.3f} s, neither {found['nothing']:.3f} s of processor time"
    return [
        Row("import timely: a process over one that imports NumPy", found["timely"] / found["numpy"], 1.3, less=True, note=note),
        Row("a first dataflow: a process over one that imports timely", found["first"] / found["timely"], 1.3, less=True),
    ]


def run(rounds: int = 5, *, quick: bool = False) -> list[Row]:
    """Return all rows; ``rounds`` are of imports, since what else is long here is so by far."""
    if quick:
        return [*import_rows(1), *rendezvous_rows((10, 100)), *mesh_rows((4,), 50), *mode_rows(64), *gather_rows((2,), 50)]
    return [
        *import_rows(rounds),
        *rendezvous_rows(WORKERS),
        *mesh_rows(MESHES, 1_000),
        *mode_rows(1_000),
        *gather_rows(GATHERS, 1_000),
    ]
