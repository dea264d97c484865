"""The hosts' hooks (docs/protocol.md, Hooks, Waiter), all below the command `hook`.

At nearly every call `state_file` finds that there is nothing to say. Otherwise `answers` decides, from the event and
from what the agent has not read, what the host is answered in JSON, and remembers it as `state`. `waiter` is the
process in the background that wakes an idle agent.
"""
