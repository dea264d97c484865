"""Conversations, their delegation, and task operations from a chat session."""
