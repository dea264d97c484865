"""What a doorbell's reasons mean, and what to do about those that stay. For people."""

from __future__ import annotations

from collections.abc import Mapping

_MEANINGS: Mapping[str, str] = {
    "no_hook": "no waiter of its host lives: `host-config claude --write`, then start the host",
    "no_codex_thread": "Codex has not named its thread yet: it does at its first turn with our server",
    "codex_gone": "its server does not run, so nobody would read what Codex queues: start the agent",
    "no_codex": "there is no `codex` command on PATH",
    "not_human": "notices on the desktop are for humans",
    "no_desktop": "neither osascript nor notify-send is on PATH",
    "no_pane": "no pane is registered: start it in tmux with `up` or `serve`, or `agent set ID --pane %N`",
    "pane_gone": "its pane is closed: start the agent again",
    "pane_changed": "another program runs in its pane now: start the agent again",
    "pane_dead": "the program in its pane has ended",
    "tmux_gone": "its tmux server does not run",
    "tmux_restarted": "another tmux server runs at its socket: start the agent again",
    "tmux_timeout": "tmux did not answer within two seconds",
    "no_tmux": "there is no tmux on PATH",
    "shell": "a shell would run what is typed: start the host in the pane",
    "copy_mode": "somebody scrolls in the pane; tried again when they leave",
    "input_off": "input to the pane is switched off (select-pane -d)",
    "synchronized": "panes are synchronized: the line would go into all of them",
    "human_typing": "somebody types there; tried again in a few seconds",
    "draft": "somebody's draft stands in the composer; tried again when it is gone",
    "unknown_host": "no profile describes the program in its pane, or it is not the registered one of a `host: plain`; "
    "`doctor` says what to do",
    "unknown_screen": "a screen nobody has described; kept in unknown_screens/ so that the profile can be mended",
    "no_such_rung": "its `ladder` in agents.json names a rung that does not exist",
}


def meaning(reason: str | None) -> str:
    """One line for people; the reason itself where it says enough (a dialog's name)."""
    if reason is None:
        return "can ring"
    return f"{reason}: {_MEANINGS[reason]}" if reason in _MEANINGS else reason
