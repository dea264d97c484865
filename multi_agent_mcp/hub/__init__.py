"""One team on several machines: the relay of this machine, its way to the hub (NATS JetStream), and joining."""
