"""Completions that are lies: `python -m tests.lies [COUNT]` tells that many, `test_lies.py` one of each kind."""
