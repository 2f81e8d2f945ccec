"""``execute``: run a program on several workers, as threads, as processes, or as threads in processes, on this machine."""

from timely.execution.running import example, execute

__all__ = ["example", "execute"]
