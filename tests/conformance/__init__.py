"""Thousands of doorbells into panes whose programs behave like the real hosts, beside a human who does as humans do."""
