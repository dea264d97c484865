"""Entities as text: a YAML header and a Markdown body."""
