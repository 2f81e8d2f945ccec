"""Benchmarks, run with ``python -m benchmarks``: side by side in one run, judged by ratios, never by absolute times."""
