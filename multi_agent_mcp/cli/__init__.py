"""The command line, for people and scripts. The only code that knows click and rich."""
