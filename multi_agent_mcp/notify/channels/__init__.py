"""The ways to ring, from the strongest to the weakest."""
