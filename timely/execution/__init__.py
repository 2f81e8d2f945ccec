"""``execute``: run a program on several workers, in threads, in processes, or on several machines."""

from timely.execution.background import BackgroundRun, start
from timely.execution.local_run import example, execute

__all__ = ["BackgroundRun", "example", "execute", "start"]
