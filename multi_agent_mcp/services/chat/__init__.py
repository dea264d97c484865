"""Conversations, their delegation to a chat session, and what a chat session may do."""
