"""Benchmarks, each beside a floor measured in the same run: `python -m benchmarks [--quick] [--json] [ROW ...]`."""
