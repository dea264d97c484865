"""What is computed from many entities at once: who is stuck, what happened when, how much and how long."""
