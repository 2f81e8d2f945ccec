"""Pregel by columns, and the algorithms on it: each superstep is a few Arrow kernels over one worker's part of the graph.

It knows no Spark. It may import ``timely.graphs.stages`` and ``timely.graphs.structures``.
"""
