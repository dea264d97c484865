"""Tests of what agents' models took."""
