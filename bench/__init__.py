"""Benchmarks: kernelrt and its alternatives, in the same process and the same run.

``pytest bench`` times each side with pytest-benchmark. ``python -m bench.report`` interleaves the
sides and prints one table of ratios.
"""
