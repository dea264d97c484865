"""The hosts' hooks (docs/protocol.md, Hooks, Waiter), all below the command `hook`.

At nearly every call `first_look` finds that there is nothing to announce. Otherwise `answers` determines the JSON
answer for the host, from the event and the agent's unread items, and records the announced ones. `waiter`
is the background process that wakes an idle agent."""
