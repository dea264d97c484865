"""File access: durable writes, locks, and containment within the session's directory."""
