"""The Owner's console: a page over the same services, bound to loopback. Only the `web` command starts it."""
