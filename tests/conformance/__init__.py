"""Thousands of doorbells into panes with programs that behave like the real hosts, beside a simulated human."""
