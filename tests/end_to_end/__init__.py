"""Real processes, real stdio, a real tmux server on its own socket. Nothing here is replaced by a double."""
