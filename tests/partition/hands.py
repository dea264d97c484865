"""People who write and edit files with an editor while their machine is cut off, on every machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from multi_agent_mcp.services.tasks.board import NewTask
from tests.hub.support import HOMES, Machine, Machines, eventually

OWN, CONTESTED = "Sheet", "Quarrel"
RECEIVERS = tuple(agent_id for agents in HOMES.values() for agent_id in agents)


@dataclass
class Hands:
    """Edits tasks by hand: one task for each machine alone, and one for each round that all machines edit."""

    made: Machines
    rounds: int
    own: dict[str, str] = field(default_factory=dict)
    contested: list[str] = field(default_factory=list)
    messages: list[tuple[str, str]] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)
    titles: dict[str, str] = field(default_factory=dict)
    quarrels: dict[str, dict[str, str]] = field(default_factory=dict)
    """Contested task → machine → the title that was given to it there."""

    def prepare(self) -> None:
        services = next(iter(self.made.members.values())).services
        titles = [f"{OWN} {name}" for name in self.made.members] + [f"{CONTESTED} {n}" for n in range(self.rounds)]
        tasks = services.task_creation.create(services.agents.get("admin"), [NewTask(title=title) for title in titles])
        ids = [task.id for task in tasks]
        self.own = dict(zip(self.made.members, ids, strict=False))
        self.contested = ids[len(self.own) :]
        for machine in self.made.members.values():
            eventually(lambda machine=machine: {task.id for task in machine.services.workspace.tasks.all()} >= set(ids))  # type: ignore[misc]

    def write(self, number: int) -> None:
        """In this round, on every machine: a message, a task, a task of its own edited, and one that all edit."""
        task_id = self.contested[number % len(self.contested)]
        receivers = [agent_id for name in self.made.members for agent_id in HOMES[name]]
        for machine in self.made.members.values():
            receiver = receivers[number % len(receivers)]
            words = f"by hand of {machine.name} {number}"
            note = machine.path / "ipc" / receiver / f"note of {machine.name} {number}.md"
            note.write_text(f"---\nsender_id: admin\n---\n\n{words}", encoding="utf-8")
            self.messages.append((receiver, words))
            made = machine.path / "tasks" / "worker-a" / f"tsk_{len(self.tasks):04x}{number:08x}.md"
            made.parent.mkdir(exist_ok=True)
            self.tasks.append(f"made {words}")
            made.write_text(f"---\ntitle: made {words}\nassignee_id: worker-a\n---\n\n", encoding="utf-8")
            retitle(machine, self.own[machine.name], words)
            self.titles[self.own[machine.name]] = words
            if task_id not in self.quarrels or machine.name not in self.quarrels[task_id]:
                retitle(machine, task_id, words)
                self.quarrels.setdefault(task_id, {})[machine.name] = words

    def forget(self, name: str) -> None:
        """This machine's files are gone, and what was set aside there with them."""
        for said in self.quarrels.values():
            said.pop(name, None)

    def wrong(self) -> list[str]:
        """Edits that are missing on a machine, or that lost to another edit and were not set aside."""
        return [line for machine in self.made.members.values() for line in self._wrong_at(machine)]

    def _wrong_at(self, machine: Machine) -> list[str]:
        workspace, wrong = machine.services.workspace, []
        for receiver, words in self.messages:
            count = sum(item.content == words for item in workspace.mailbox(receiver).history())
            if count != 1:
                wrong.append(f"{machine.name}: the message {words!r} is there {count} times")
        titles = [task.title for task in workspace.tasks.all()]
        wrong += [f"{machine.name}: the task {words!r} is missing" for words in self.tasks if titles.count(words) != 1]
        for task_id, title in self.titles.items():
            if (found := workspace.tasks.get(task_id).title) != title:
                wrong.append(f"{machine.name}: a task is called {found!r}, not {title!r} as it was edited")
        return wrong + [
            line for task_id, said in self.quarrels.items() for line in self._quarrel(machine, task_id, said)
        ]

    def _quarrel(self, machine: Machine, task_id: str, said: dict[str, str]) -> list[str]:
        standing = machine.services.workspace.tasks.get(task_id).title
        if not standing.startswith("by hand of "):
            return [f"{machine.name}: {task_id} is called {standing!r}, as nobody has edited it"]
        mine = said.get(machine.name, standing)
        aside = [path.read_text() for path in machine.path.glob(f"tasks/*/quarantine/{task_id}*.md")]
        if mine != standing and not any(f"title: {mine}\n" in text for text in aside):
            return [f"{machine.name}: the edit {mine!r} is neither in the file nor set aside"]
        return []


def retitle(machine: Machine, task_id: str, title: str) -> None:
    """Changes a title as an editor does that replaces the file."""
    (path,) = machine.path.glob(f"tasks/*/{task_id}.md")
    lines = path.read_text(encoding="utf-8").split("\n")
    changed = [f"title: {title}" if line.startswith("title: ") else line for line in lines]
    beside = Path(f"{path}~")
    beside.write_text("\n".join(changed), encoding="utf-8")
    beside.replace(path)
