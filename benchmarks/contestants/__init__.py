"""One module for each contestant of ``benchmarks.peers``: the same workloads as programs of their own, each run by itself.

They are run as ``python -m benchmarks.contestants.by_bytewax``, by the Python of an environment in which the contestant is
installed and this project is not. So they import nothing but the contestant, Python's own library and ``told``.
"""
