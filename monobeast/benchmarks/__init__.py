"""Benchmarks: `python -m monobeast.benchmarks.NAME`. Training imports none of these files."""
