"""A dialog is answered by one key while it is shown, and by none otherwise (docs/protocol.md, Answering a dialog), with
a real tmux and a program that changes its question at that moment.

`MULTI_AGENT_MCP_TEST_ANSWERS=1000` is the long form: so many answers, each with a change on its way.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.dialog import Answered, Dialog
from multi_agent_mcp.doorbell.tmux import dialogs
from multi_agent_mcp.doorbell.tmux.notifier import TmuxNotifier
from multi_agent_mcp.doorbell.tmux.profiles import load_profiles
from multi_agent_mcp.doorbell.tmux.snapshot import ANSWER_OPTION
from multi_agent_mcp.doorbell.tmux.typing import Attempt
from tests.conformance.stage import Stage
from tests.doorbell.tmux.asker import asker_command
from tests.end_to_end.support import wait_until

pytestmark = pytest.mark.tmux
ANSWERS = int(os.environ.get("MULTI_AGENT_MCP_TEST_ANSWERS", "16"))
PANES = 4
CHANGES_WITHIN_SECONDS = 0.1


@dataclass
class Asking:
    """An agent whose program asks."""

    agent: Agent
    log: Path
    notifier: TmuxNotifier

    def events(self, event: str) -> list[dict[str, Any]]:
        lines = self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []
        return [record for record in map(json.loads, lines) if record["event"] == event]

    def dialog(self) -> Dialog:
        return self.other_than(None)

    def other_than(self, before: Dialog | None) -> Dialog:
        """Waits until the program shows a dialog other than `before`; returns it."""
        asked: list[Dialog] = []

        def asks() -> bool:
            asked[:] = [dialog] if (dialog := self.notifier.dialog(self.agent)) is not None else []
            return bool(asked) and asked != [before]

        wait_until(asks, "it asks something")
        return asked[0]

    def answer(self, dialog: Dialog, key: str = "1") -> Answered:
        return self.notifier.answer(self.agent, dialog.id, key)

    def change(self) -> None:
        os.kill(int(self.agent.pane_pid or 0), signal.SIGUSR1)


@pytest.fixture
def asking(stage: Stage) -> Iterator[Callable[[], Asking]]:
    made: list[Asking] = []

    def make() -> Asking:
        made.append(begin(stage))
        return made[-1]

    yield make
    for one in made:
        stage.tmux("kill-session", "-t", f"={one.agent.id}", check=False)


def begin(stage: Stage) -> Asking:
    name = f"asker-{time.monotonic_ns()}"
    log = stage.root / f"{name}.log"
    size = ("-x", "100", "-y", "40")
    pane = stage.tmux("new-session", "-d", "-s", name, *size, "-P", "-F", "#{pane_id}", asker_command(log))
    stage.workspace.registry.add(Agent(id=name, host="claude"))
    wait_until(lambda: log.exists(), "it has begun")
    stage.register(name, pane)
    return Asking(stage.workspace.registry.get(name), log, TmuxNotifier(0.02, load_profiles(), quiet_seconds=0.0))


def test_one_key_answers_and_what_came_of_it_is_said(asking: Callable[[], Asking]) -> None:
    one = asking()
    asked = one.dialog()
    assert "Bash command 0" in asked.text
    assert [(choice.key, choice.label, choice.lasting) for choice in asked.choices] == [
        ("1", "Yes", False),
        ("2", "Yes, and don't ask again", True),
        ("3", "No", False),
    ]
    came = one.answer(asked, "3")
    assert (came.state, came.reason, came.screen, came.dialog) == ("answered", None, "dialog", asked)
    assert [event["key"] for event in one.events("key")] == ["3"]
    assert "Bash command 1" in one.dialog().text


def test_what_is_not_the_question_gets_no_key(asking: Callable[[], Asking]) -> None:
    one = asking()
    asked = one.dialog()
    assert one.answer(asked, "4") == Answered("refused", "no_such_choice", dialog=asked)
    assert one.answer(asked, "1; kill-server").reason == "no_such_choice"
    one.change()
    now = one.other_than(asked)
    assert one.answer(asked) == Answered("refused", "other_dialog", dialog=now)
    assert one.events("key") == []


def test_a_question_waits_although_somebody_scrolls_there_and_is_not_answered_then(
    asking: Callable[[], Asking], stage: Stage
) -> None:
    one = asking()
    asked, pane = one.dialog(), str(one.agent.pane_id)
    for change, back, reason in (
        (("copy-mode", "-t", pane), ("send-keys", "-t", pane, "-X", "cancel"), "copy_mode"),
        (
            ("set-option", "-w", "-t", pane, "synchronize-panes", "on"),
            ("set-option", "-w", "-t", pane, "synchronize-panes", "off"),
            "synchronized",
        ),
    ):
        stage.tmux(*change)
        assert one.notifier.host(one.agent) == ("claude", "dialog")
        assert one.notifier.dialog(one.agent) == asked
        assert one.answer(asked) == Answered("refused", reason)
        stage.tmux(*back)
    assert one.events("key") == []


def test_an_answer_after_which_the_host_runs_another_program_first_is_taken(asking: Callable[[], Asking]) -> None:
    one = asking()
    asked = one.dialog()
    (one.log.parent / "sudo").symlink_to(Path(shutil.which("sleep") or "").resolve())
    Path(f"{one.log}.works").touch()
    assert one.answer(asked).state == "answered"


def test_two_people_at_once_are_one_answer(asking: Callable[[], Asking]) -> None:
    one = asking()
    asked = one.dialog()
    with ThreadPoolExecutor(6) as people:
        came = list(people.map(lambda key: one.answer(asked, key), "123123"))
    assert sorted(outcome.state for outcome in came) == ["answered", *["refused"] * 5]
    assert {outcome.reason for outcome in came} <= {None, "other_dialog", "answer_pending", "changed_meanwhile"}
    assert len(one.events("key")) == 1


def test_a_host_that_has_not_heard_the_key_yet_gets_no_second_one(asking: Callable[[], Asking]) -> None:
    one = asking()
    asked = one.dialog()
    late = Path(f"{one.log}.late")
    late.touch()
    wait_until(lambda: one.events("late"), "it does not read any more")
    came = one.answer(asked)
    assert (came.state, came.reason) == ("pressed", "not_taken")
    assert one.answer(asked, "3") == Answered("refused", "answer_pending", dialog=asked)
    late.unlink()
    wait_until(lambda: one.events("key"), "it hears the key")
    assert [event["key"] for event in one.events("key")] == ["1"]


def test_the_same_question_asked_again_is_another_question(asking: Callable[[], Asking]) -> None:
    one = asking()
    Path(f"{one.log}.rests").touch()
    asked = one.dialog()
    assert one.answer(asked).state == "answered"
    one.change()
    assert one.dialog() == asked
    assert one.answer(asked, "3").state == "answered"
    assert [event["key"] for event in one.events("key")] == ["1", "3"]


def test_in_a_window_that_never_rests_no_key_is_sent_because_tmux_compares_no_blank_rows(
    asking: Callable[[], Asking], stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialogs, "SETTLE_SECONDS", 0)  # or it finds a moment between two lines, which is good, too
    one = asking()
    stage.tmux("split-window", "-d", "-l", "3", "-t", str(one.agent.pane_id), "while :; do echo x; sleep 0.001; done")
    asked = one.dialog()
    assert one.answer(asked) == Answered("refused", "restless", dialog=asked)
    assert one.events("key") == []


def test_a_pane_that_dies_is_said(asking: Callable[[], Asking], stage: Stage) -> None:
    one, other = asking(), asking()
    asked = one.dialog()
    stage.tmux("kill-pane", "-t", str(one.agent.pane_id))
    assert one.answer(asked) == Answered("refused", "pane_gone")
    assert one.notifier.dialog(one.agent) is None
    Path(f"{other.log}.late").touch()
    wait_until(lambda: other.events("late"), "it does not read any more")
    asked, pane = other.dialog(), str(other.agent.pane_id)

    def dies() -> None:
        wait_until(lambda: stage.tmux("show-options", "-p", "-v", "-t", pane, ANSWER_OPTION, check=False), "the key")
        stage.tmux("kill-pane", "-t", pane)

    dying = threading.Thread(target=dies)
    dying.start()
    came = other.answer(asked)
    dying.join()
    assert came.state == "pressed"
    assert came.reason in {"pane_gone", "pane_dead", "unknown_host"}


def test_a_question_that_changes_under_the_hand_is_never_answered_for_another(asking: Callable[[], Asking]) -> None:
    chance = random.Random(17)  # noqa: S311 - chance, not a secret
    seeds = [chance.random() for _ in range(PANES)]
    with ThreadPoolExecutor(PANES) as people:
        states = [*people.map(lambda seed: under_the_hand(asking(), ANSWERS // PANES, seed), seeds)]
    counted = {state: sum(found.count(state) for found in states) for state in ("answered", "refused", "crossed")}
    assert counted["refused"], f"no change came in time: {counted}"
    assert sum(counted.values()) == ANSWERS // PANES * PANES
    sys.stderr.write(f"\n{counted}\n")


def under_the_hand(one: Asking, rounds: int, seed: float) -> list[str]:
    """Answers while the question changes; returns the result of each answer. Fails when a key reached another question
    than the intended one."""
    chance = random.Random(seed)  # noqa: S311 - chance, not a secret
    found = [answered_meanwhile(one, chance) for _ in range(rounds)]
    assert len(one.events("key")) == len(found) - found.count("refused")
    return found


def answered_meanwhile(one: Asking, chance: random.Random) -> str:
    """Answers once while the question changes: `answered`, `refused`, or `crossed` when the key was sent before the
    terminal showed the change."""
    asked, drawn, keys = one.dialog(), one.events("drawn")[-1]["drawn"], len(one.events("key"))
    time.sleep(1.1)  # otherwise the answer itself waits until the window rests, and the change comes before it
    changing = threading.Timer(chance.random() * CHANGES_WITHIN_SECONDS, one.change)
    changing.start()
    came = one.answer(asked, chance.choice("123"))
    changing.join()
    if came.state != "refused":
        wait_until(lambda: one.events("key")[keys:], "the key arrives")
    wait_until(lambda: one.events("drawn")[-1]["drawn"] > drawn, "it asks the next question")
    pressed = one.events("key")[keys:]
    assert len(pressed) == (came.state != "refused"), (came, pressed)
    if any(event["crossed"] for event in pressed):
        return "crossed"
    assert all(event["drawn"] == drawn for event in pressed), (asked, pressed)
    return "answered" if pressed else "refused"


def test_a_tmux_that_stops_with_the_key_on_its_way_may_press_it_when_it_goes_on(
    asking: Callable[[], Asking], stage: Stage
) -> None:
    one = asking()
    asked, server = one.dialog(), int(stage.tmux("display-message", "-p", "#{pid}"))

    def look() -> Attempt | str:
        attempt = one.notifier._attempt(one.agent)
        if not isinstance(attempt, str) and attempt.snapshot.settled:
            os.kill(server, signal.SIGSTOP)
        return attempt

    try:
        came = dialogs.answer(look, asked.id, "3")
    finally:
        os.kill(server, signal.SIGCONT)
    assert came == Answered("pressed", "tmux_timeout", dialog=asked)
    wait_until(lambda: one.events("key"), "tmux presses what it was sent")
