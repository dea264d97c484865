"""Agents in one repository: what they edit, and what they reserve."""
