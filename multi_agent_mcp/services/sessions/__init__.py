"""Agent sessions (running server processes), their confirmations and executions, and the Owner's wait-lock."""
