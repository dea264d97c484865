"""The hosts' hooks: what they are told, what they were told before, and the background waiter."""
