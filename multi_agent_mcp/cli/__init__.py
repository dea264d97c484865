"""The command line: the human's door. The only code that knows typer and rich."""
