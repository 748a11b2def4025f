"""What costs how much: `python -m monobeast.benchmarks.NAME`. Nothing of a run imports these files."""
