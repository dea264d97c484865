"""Frozen values and their rules. Nothing here accesses the disk, the clock or the environment."""
