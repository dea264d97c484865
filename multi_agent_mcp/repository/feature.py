"""The features of this folder. They are read at every start."""

from __future__ import annotations

from multi_agent_mcp.features import Command, Endpoint, Feature, Kind

RESERVATION = Kind(
    "reservations", "rsv", "reservation", "shared", layout=".repository.reservation:reservations", claims="rsvs"
)
RESERVATIONS = Feature(
    name="reservations",
    optional=True,
    settings={"reservations": ".repository.settings:RESERVATIONS"},
    kinds=(RESERVATION,),
    topics={"reservations": "files", ".edits": "files"},
    services={
        "reservations": ".repository.reservations:Reservations",
        "edits": ".repository.edits:Edits",
    },
    on={"edited": "edits.edited", "edits_arrived": "edits.arrived"},
    answers={"tools_of_hosts": "edits.tools", "shared_files": "edits.overlaps", "edited_for": "edits.edited_for"},
    expires={"reservations": "reservations.end_over"},
    tools=(".repository.tools:TOOLS",),
    commands={
        "edits": Command("Files", ".repository.commands:edits", "List who edits which files."),
        "reservations": Command(
            "Files", ".repository.commands:reservations", "List which files are reserved, and by whom."
        ),
        "reserve": Command(
            "Files", ".repository.commands:reserve", "Reserve files, so that agents ask before editing them."
        ),
        "release": Command("Files", ".repository.commands:release", "End a reservation."),
    },
    endpoints=(
        Endpoint("GET", "/files", ".repository.page:files"),
        Endpoint("POST", "/reservations/{reservation_id}/release", ".repository.page:release"),
    ),
    pages=("files",),
    checks={"reservations": ".repository.reservations:check"},
    phrases={"checks approve": (", reservations",)},
    judges=(".repository.reservations:judge",),
    watched=(".repository.views:watched", ".repository.views:watched_reservations"),
    of_agent=(".repository.views:edits_and_reservations",),
    still_open="reservations.still_open",
)

WORKTREES = Feature(
    name="worktrees",
    optional=True,
    settings={
        "workspace": ".repository.settings:WORKSPACE",
        "workspace_setup": ".repository.settings:parse_setup",
        "guard": ".repository.settings:parse_guard",
        "commit": ".repository.settings:COMMIT",
    },
    of_agents=("workspace", "commit"),
    keys={"task": ("commits", "uncommitted")},
    choices={"state": ("merged",)},
    phrases={"notify_when": (", merged",), "when": (", merged",)},
    topics={".workspaces": "files"},
    services={
        "worktrees": ".repository.worktrees:Worktrees",
        "merging": ".repository.merging:Merging",
        "guard": ".repository.guard:Guard",
    },
    answers={
        "workplace": "worktrees.of",
        "wants_workplace": "worktrees.wants",
        "make_workplace": "worktrees.ensure",
        "variables": "worktrees.environment",
        "commit_place": "worktrees.commit_place",
        "delivered": "worktrees.delivered",
        "commits": "worktrees.commits",
        "to_merge": "worktrees.to_merge",
        "refusal": "worktrees.not_trusted",
    },
    operations=("worktrees", "merging"),
    commands={
        "workspace": Command("Files", ".repository.commands:workspace", "Worktrees: add, list, merge, remove."),
        "why": Command("Files", ".repository.commands:why", "Say for which task the lines of a file were written."),
    },
    endpoints=(
        Endpoint("GET", "/worktrees", ".repository.page:worktrees"),
        Endpoint("POST", "/tasks/{task_id}/merge", ".repository.page:merge"),
    ),
    checks={"worktrees": ".repository.views:check_worktrees"},
    attention={"kept": 170, "uncommitted": 175},
    items=(".repository.views:kept", ".repository.views:uncommitted"),
    briefing=("worktrees.section",),
    judges=(".repository.guard:judge",),
    of_agent=(".repository.views:worktree",),
    still_open="worktrees.still_open",
)
