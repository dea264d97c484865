"""The views that a host shows in place of its composer, modelled on the fixtures."""

from __future__ import annotations

DIALOG = {
    "claude": " Bash command\n\n   touch x\n\n Do you want to proceed?\n ❯ 1. Yes\n   2. No\n\n Esc to cancel",
    "codex": "  Would you like to run the following command?\n\n  $ touch x\n\n\n› 1. Yes, proceed (y)\n"
    "  2. No (esc)\n\n  Press enter to confirm or esc to cancel",
}
PICKER = {
    "claude": "  Select model\n\n  ❯ 1. Default\n    2. Opus\n\n  Enter to set as default · Esc to cancel",
    "codex": "  Select Model and Effort\n\n\n› 1. GPT-6\n  2. GPT-5\n\n  enter select · esc back",
}
TRANSCRIPT = {
    "claude": "● some words\n\n────────────────────────\n  Showing detailed transcript · ctrl+o to toggle",
    "codex": "/ T R A N S C R I P T / / / /\n\n› some words\n\n q to quit",
}
VIEWS = {"dialog": DIALOG, "picker": PICKER, "transcript": TRANSCRIPT}
