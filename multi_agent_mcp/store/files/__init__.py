"""How bytes reach the disk: durable writes, locks, and nothing that leads out of the session's directory."""
