"""Agent sessions (running server processes), their receipts and executions, and the Owner's wait-lock."""
