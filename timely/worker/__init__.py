"""The worker, its scheduler and the transports between workers."""

from timely.worker.coordination import Barrier, Sequencer
from timely.worker.scheduler import Scheduler
from timely.worker.transports import LocalTransport, PeerTransport, SocketTransport, Transport, thread_transports
from timely.worker.worker import Worker

__all__ = [
    "Barrier",
    "LocalTransport",
    "PeerTransport",
    "Scheduler",
    "Sequencer",
    "SocketTransport",
    "Transport",
    "Worker",
    "thread_transports",
]
