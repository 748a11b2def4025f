"""What `monobeast benchmark` measures whole runs with; `python -m monobeast.benchmarks.vtrace` runs by itself."""
