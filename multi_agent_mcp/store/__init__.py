"""The files of a session: the only code that reads and writes them."""
