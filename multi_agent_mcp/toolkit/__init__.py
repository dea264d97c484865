"""The door for Python programs (docs/python.md)."""
