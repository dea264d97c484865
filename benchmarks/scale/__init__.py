"""`scripts/bench --scale`: what a small and a large session cost in processor time, in one run (docs/performance.md).

To add a row: write a case, name it in `benchmarks/scale/rows.py`."""
