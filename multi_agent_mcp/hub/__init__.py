"""A team on several machines: this machine's relay, its connection to the hub (NATS JetStream), and joining."""
