"""Checks of a session directory, repairs, and pruning."""
