"""`demo`: the main job, for real, in panes of its own."""

from __future__ import annotations


def demo() -> None:
    """placeholder"""
