"""Structures in memory: arrays, lists, sorted blocks, adjacency, sets of edges, dictionaries of nodes.

They know of no dataflow. They may import NumPy, Arrow and ``timely.memory``.
"""
