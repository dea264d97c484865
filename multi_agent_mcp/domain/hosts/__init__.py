"""What the hosts of agents show and write: dialogs, usage limits, tokens."""
