"""The features of this package. Their order is that of whatever lists them."""

from __future__ import annotations

from importlib import import_module

from multi_agent_mcp.features import Action, Command, Endpoint, Feature, Features, Kind

MACHINERY = "Machinery"
"""The section of what hosts and our own windows run, which `help --all` alone lists."""

ABSENT: set[str] = set()
"""The names of the features whose folder is not there: they are off."""


def _of_folder(folder: str, name: str) -> tuple[Feature, ...]:
    """The record of an optional folder; none if the folder is not there, or one that it requires."""
    package = f"multi_agent_mcp.{folder}"
    try:
        found: Feature = getattr(import_module(f"{package}.feature"), name.upper())
    except ModuleNotFoundError as error:
        if error.name not in (package, f"{package}.feature"):
            raise
        ABSENT.add(name)
        return ()
    return (found,) if ABSENT.isdisjoint(found.requires) else ()


TEAM = Feature(
    name="team",
    kinds=(Kind("secrets"),),
    topics={"agents.json": "agents", "audit": "agents"},
    answers={
        "has_lost_pane": "pane_notifier.has_lost",
        "is_at_work": "pane_notifier.is_at_work",
        "approval": "approvals.look",
    },
    tools=(".server.tools.ipc:IDENTITY",),
    while_waiting=("authenticate", "logout"),
    commands={
        "init": Command("Every day", ".cli.setup:init", "Create a session, and a team.yaml if there is none."),
        "up": Command("Every day", ".cli.up_down:up", "Open the team in tmux and say what waits for you."),
        "restart": Command("Team", ".cli.up_down:restart", "End an agent's program and start it again in its window."),
        "attach": Command("Every day", ".cli.up_down:attach", "Show the team's windows in this terminal."),
        "down": Command("Every day", ".cli.up_down:down", "Close what `up` opened, or some agents' windows."),
        "agent": Command("Team", ".cli.agents:agent", "Manage agents: add, set, list, approve, remove, brief."),
        "supervise": Command(
            MACHINERY, ".cli.up_down:supervise", "Open windows for missing agent sessions (`up` runs it)."
        ),
        "host-config": Command(
            MACHINERY, ".cli.hosts:host_config", "Show or write a host's configuration for an agent."
        ),
        "host": Command("Team", ".cli.hosts:host", "Learn a host that has no profile."),
    },
    endpoints=(
        Endpoint("GET", "/session", ".web.api.overview:show_session"),
        Endpoint("GET", "/team", ".web.api.overview:team"),
        Endpoint("GET", "/agents", ".web.api.agents:tree"),
        Endpoint("GET", "/agents/{agent_id}", ".web.api.agents:show"),
        Endpoint("POST", "/agents/{agent_id}/interrupt", ".web.api.agents:interrupt"),
        Endpoint("POST", "/agents/{agent_id}/resume", ".web.api.agents:resume"),
        Endpoint("POST", "/agents/{agent_id}/release", ".web.api.agents:release"),
        Endpoint("GET", "/agents/{agent_id}/files", ".web.api.agents:files"),
        Endpoint("GET", "/agents/{agent_id}/pane", ".web.api.agents:pane"),
        Endpoint("GET", "/agents/{agent_id}/scrollback", ".web.api.agents:scrollback"),
        Endpoint("POST", "/agents/{agent_id}/answer", ".web.api.agents:answer_dialog"),
        Endpoint("POST", "/agents/{agent_id}/line", ".web.api.agents:type_line"),
    ),
    pages=("board", "agents"),
    checks={
        "registry": ".services.doctor.doctor:registry",
        "keys": ".services.doctor.doctor:keys",
        "hierarchy": ".services.doctor.doctor:hierarchy",
        "panes": ".services.doctor.doctor:panes",
        "hosts": ".services.doctor.doctor:hosts",
        "rules": ".services.doctor.doctor:rules",
        "host_files": ".services.doctor.doctor:host_files",
        "hooks": ".services.doctor.doctor:hooks",
        "notify_command": ".services.doctor.doctor:notify_command",
        "features": ".services.doctor.doctor:features",
    },
    judges=(".hooks.rules:judge",),
    attention={"dialog": 10, "login": 30, "tmux": 60, "stuck": 80, "checks_changed": 85, "paused": 140},
    items=(".services.attention:Attention.checks_changed", ".services.attention:Attention.paused"),
)

MAIL = Feature(
    name="mail",
    kinds=(
        Kind("ipc", "msg", "message", is_searched=True),
        Kind("notifications", "ntf", "notification", follows=".domain.notification:OF_NOTIFICATION"),
        Kind("owner_wait"),
    ),
    topics={
        "ipc": "messages",
        ".doorbell": "messages",
        "notifications": "notifications",
        "owner_wait": "agents",
    },
    on={
        "sent": "loops.after_sending",
        "notified": "doorbell.announce_notification",
        "task_session_ended": "derived_notices.offer_again",
    },
    operations=("messages",),
    tools=(".server.tools.ipc:MAIL",),
    while_waiting=("read_messages", "get_unread_count", "unlock_owner_wait", "get_notifications"),
    commands={
        "send": Command("Every day", ".cli.mail:send", "Send a message and ring its receiver."),
        "reply": Command("Mail", ".cli.mail:reply", "Answer a message."),
        "read": Command("Every day", ".cli.mail:read", "Print unread mail and mark it read."),
        "unread": Command("Mail", ".cli.mail:unread", "Say how much mail is unread, from whom and about what."),
        "search": Command(
            "Mail", ".cli.looking:search", "Find words in mail, tasks, questions, conversations and logs."
        ),
        "trace": Command("Mail", ".cli.mail:trace", "Show every step a message took."),
    },
    endpoints=(
        Endpoint("GET", "/messages", ".web.api.messages:list_messages"),
        Endpoint("POST", "/messages", ".web.api.messages:send"),
        Endpoint("POST", "/messages/read", ".web.api.messages:mark_all_read"),
        Endpoint("GET", "/messages/{message_id}", ".web.api.messages:show_message"),
        Endpoint("POST", "/messages/{message_id}/read", ".web.api.messages:mark_read"),
        Endpoint("POST", "/messages/{message_id}/reply", ".web.api.messages:reply"),
        Endpoint("GET", "/search", ".web.api.overview:search"),
    ),
    pages=("messages",),
    checks={"waiting": ".services.doctor.doctor:waits"},
    attention={"undelivered": 160, "wait": 180, "mail": 190},
    items=(".services.attention:Attention.wait",),
)

CHAT = Feature(
    name="chat",
    kinds=(
        Kind("conversations", "cnv", "conversation", "shared", is_searched=True),
        Kind("delegations", "dlg", "delegation", "shared", follows=".domain.notification:OF_DELEGATION"),
    ),
    topics={"conversations": "conversations", "delegations": "conversations"},
    operations=("conversations",),
    tools=(".server.tools.chat:TOOLS",),
    commands={
        "conversation": Command("Conversations", ".cli.mail:conversation", "Start one, say something in it, end it."),
        "conversations": Command(
            "Conversations", ".cli.mail:conversations", "List them, or print one with its messages."
        ),
    },
    former_commands={"say": "conversation say", "end": "conversation end"},
    endpoints=(
        Endpoint("GET", "/conversations", ".web.api.messages:list_conversations"),
        Endpoint("POST", "/conversations", ".web.api.messages:start_conversation"),
        Endpoint("GET", "/conversations/{conversation_id}", ".web.api.messages:show_conversation"),
        Endpoint("POST", "/conversations/{conversation_id}/messages", ".web.api.messages:say"),
        Endpoint("POST", "/conversations/{conversation_id}/end", ".web.api.messages:end_conversation"),
        Endpoint(
            "GET",
            "/conversations/{conversation_id}/messages/{message_id}",
            ".web.api.messages:show_message_of_conversation",
        ),
    ),
    pages=("conversations",),
    attention={"conversation": 120},
)

TASKS = Feature(
    name="tasks",
    kinds=(Kind("tasks", "tsk", "task", "shared", is_searched=True, follows=".domain.notification:OF_TASK"),),
    topics={"tasks": "tasks"},
    on={"task_done": "delivery_records.finish", "task_reported": "diffs.reported"},
    operations=("task_creation", "task_changes", "interrupting", "deliveries", "next_action"),
    tools=(".server.tools.tasks:TOOLS",),
    commands={
        "task": Command(
            "Every day", ".cli.tasks:task", "Tasks: add, list, show, diff, status, assign, approve, reject, verify."
        ),
        "send-task": Command("Tasks", ".cli.tasks:send_task", "Give an agent a task by mail."),
        "interrupt": Command("Tasks", ".cli.tasks:interrupt", "Stop an agent at its next tool call."),
        "resume": Command("Tasks", ".cli.tasks:resume", "Let a paused agent go on."),
        "wait": Command("Tasks", ".cli.tasks:wait", "The Owner's wait for an answer: end it."),
    },
    former_commands={"unlock": "wait end"},
    endpoints=(
        Endpoint("GET", "/tasks", ".web.api.tasks:board"),
        Endpoint("POST", "/tasks", ".web.api.tasks:create"),
        Endpoint("GET", "/tasks/groups", ".web.api.tasks:groups"),
        Endpoint("GET", "/tasks/{task_id}", ".web.api.tasks:show"),
        Endpoint("POST", "/tasks/{task_id}/status", ".web.api.tasks:set_status"),
        Endpoint("POST", "/tasks/{task_id}/assignee", ".web.api.tasks:assign"),
        Endpoint("GET", "/tasks/{task_id}/diff", ".web.api.tasks:diff"),
        Endpoint("POST", "/tasks/{task_id}/decision", ".web.api.tasks:decide"),
    ),
    checks={"stuck": ".services.doctor.doctor:stuck", "tasks": ".services.doctor.doctor:tasks"},
    attention={"request": 100, "blocked": 130},
    items=(".services.attention:Attention.requests", ".services.attention:Attention.blocked"),
)

OVERVIEW = Feature(
    name="overview",
    answers={
        "is_supervised": "supervision.is_running",
        "opens_chat": "missing_sessions.opens_chat",
    },
    commands={
        "attention": Command(
            "Every day", ".cli.attention:attention", "What waits for you, most serious first, and what helps."
        ),
        "answer": Command("Every day", ".cli.attention:answer", "Answer a question, or what a host asks in its pane."),
        "show": Command("Looking", ".cli.looking:show", "Show anything by its id, or by its first digits."),
        "watch": Command("Every day", ".cli.watch:watch", "Show agents, tasks and messages, live."),
        "web": Command("Every day", ".cli.looking:web", "The same and more in a browser."),
    },
    endpoints=(
        Endpoint("GET", "/attention", ".web.api.overview:attention"),
        Endpoint("GET", "/health", ".web.api.overview:health"),
    ),
    pages=("health", "search"),
)

QUESTIONS = Feature(
    name="questions",
    optional=True,
    kinds=(Kind("questions", "qst", "question", "shared", is_searched=True, follows=".domain.question:OF_QUESTION"),),
    topics={"questions": "questions"},
    keys={"task": ("questions",), "figures of an agent": ("until_answer",)},
    on={"looked": "question_effects.look"},
    answers={"next_deadline": "question_effects.next_deadline"},
    tools=(".server.tools.questions:TOOLS",),
    phrases={
        "get_next_action": ("answer_question, ",),
        "answer": (
            *("a question, or ", "QUESTION_ID|", "|TEXT"),
            "; a question by one of its choices (or its number), or freely if it has none",
        ),
        "demo": (
            " question: a worker asks, parks its task, does another; the Owner answers in the console, and it goes on.",
        ),
        "search": (" questions,",),
        "stats": (" and until questions are answered",),
        "trace": (" each notification about a question,", " question,"),
        "why": (", and what was asked meanwhile",),
    },
    options={"answer": ("note",)},
    choices={"scene": ("question",)},
    while_waiting=("answer_question",),
    commands={
        "questions": Command("Looking", ".cli.attention:questions", "Who owes whom an answer, and what was answered."),
    },
    endpoints=(
        Endpoint("GET", "/questions", ".web.api.messages:list_questions"),
        Endpoint("POST", "/questions/{question_id}/answer", ".web.api.messages:answer_question"),
    ),
    checks={"questions": ".services.doctor.doctor:questions"},
    attention={"question": 20},
    items=(".services.attention:Attention.questions_to",),
    actions=(Action(10, "answering.next_action", "answering.has_more", ("task", "chat")),),
    briefing=("answering.section",),
    still_open="questions.still_open",
)

SESSIONS = Feature(
    name="sessions",
    kinds=(
        Kind("sessions", "ses", "session", "state"),
        Kind("executions", "exec", "execution", "state", is_searched=True),
        Kind("handoffs", "hnd", "handoff", "copy", is_searched=True),
    ),
    topics={"sessions": "agents", "executions": "executions"},
    on={"task_done": "executions.finish_task", "agent_recovered": "hand_offs.archive_older"},
    answers={"is_alive": "sessions.alive"},
    tools=(".server.tools.work:TOOLS",),
    commands={
        "sessions": Command("Looking", ".cli.mail:sessions", "List agent sessions: which agent runs, and for what."),
        "log": Command("Looking", ".cli.tasks:log", "List executions, or print the log of one."),
    },
    former_commands={"brief": "agent brief"},
    endpoints=(
        Endpoint("GET", "/executions", ".web.api.tasks:list_executions"),
        Endpoint("GET", "/executions/{execution_id}/log", ".web.api.tasks:execution_log"),
    ),
    pages=("executions",),
    checks={
        "sessions": ".services.doctor.doctor:sessions",
        "supervisor": ".services.doctor.doctor:windows",
    },
    attention={"down": 40, "ended": 50},
)

PROOF = Feature(
    name="proof",
    optional=True,
    kinds=(Kind("receipts", "rcp", "receipt", "copy"),),
    arguments={
        "send_task": ("done_when",),
        "create_tasks_batch": ("tasks.done_when",),
        "approve_task_request": ("state",),
    },
    phrases={
        "send_task": ("\ndone_when: checks' names, review, review:AGENT; it is done only when these are met.",),
        "approve_task_request": (", or the result of one in review (state: its head)",),
        "demo": (
            ' proven: a worker says "done" with a failing test, learns why, mends it, and is reviewed.',
            " gate: a worker edits the check that judges it; its delivery waits until the Owner has looked.",
        ),
        "init": (" and when work is proven",),
        "task": (", verify",),
        "task approve": (", or the result of one in review",),
        "task reject": (", or the result of one in review",),
        "task show": (", and the receipts of its checks",),
        "task status": (" review,",),
        "why": (", who reviewed it with which receipts of its checks",),
    },
    choices={"status": ("review",), "scene": ("proven", "gate")},
    commands={
        "checks": Command("Tasks", ".cli.tasks:checks", "List what this machine runs when a task is called done."),
    },
    options={
        "task": ("verify",),
        "task add": ("done_when",),
        "task approve": ("state",),
        "task reject": ("state",),
        "task status": ("force",),
        "send-task": ("done_when",),
    },
    checks={"checks": ".services.doctor.doctor:checks"},
    keys={
        "task": ("done_when", "proof", "receipts", "reviews", "is_examined"),
        "figures of a task": ("review",),
    },
    attention={"review": 110},
    items=(".services.attention:Attention.reviews",),
    briefing=("deliveries.section",),
    still_open="deliveries.still_open",
)

MACHINES = Feature(
    name="machines",
    optional=True,
    topics={".share": "machines"},
    commands={
        "share": Command("Machines", ".cli.machines:share", "Let other machines take part in a session."),
        "join": Command("Machines", ".cli.machines:join", "Take part in a session of another machine."),
        "machines": Command("Machines", ".cli.machines:machines", "List the machines: their state, and what waits."),
        "relay": Command(MACHINERY, ".cli.machines:relay", "Exchange files with the other machines (`up` starts it)."),
        "leave": Command("Machines", ".cli.machines:leave", "Leave the team, or exclude another machine."),
    },
    phrases={
        "agent": (", move",),
        "demo": (" machines: the main job across three machines, of which one is cut off, and the hub dies.",),
        "trace": ("; between machines also queued, on_hub, refused, arrived",),
    },
    choices={"scene": ("machines",)},
    options={"agent": ("move",)},
    endpoints=(Endpoint("GET", "/machines", ".web.api.overview:machines"),),
    pages=("machines",),
    checks={"machines": ".services.doctor.doctor:machines"},
    attention={"machine": 70},
    items=(".services.attention:Attention.away",),
    still_open="machines.still_open",
)

MAINTENANCE = Feature(
    name="maintenance",
    commands={
        "help": Command("Looking", ".cli.main:help_command", "Explain a command."),
        "doctor": Command("Every day", ".cli.maintenance:doctor", "Show what is wrong with a session, and repair it."),
        "prune": Command("Maintenance", ".cli.maintenance:prune", "Delete old things that are finished."),
        "serve": Command(MACHINERY, ".cli.for_hosts.stubs:serve", "Run an agent's MCP server."),
        "hook": Command(MACHINERY, ".cli.for_hosts.stubs:hook", "Answer a hook of a host."),
    },
    former_commands={"trust": "doctor trust"},
    checks={
        "misplaced": ".services.doctor.tree:misplaced",
        "disk": ".services.doctor.tree:unreadable",
        "tree": ".services.doctor.tree:tree",
        "notifications": ".services.doctor.tree:notifications",
        "operations": ".services.doctor.tree:operations",
        "hard_links": ".services.doctor.tree:hard_links",
        "locks": ".services.doctor.doctor:locks",
        "events": ".services.doctor.doctor:events",
    },
    verifications={
        "signatures": ".services.doctor.tree:signatures",
        "histories": ".services.doctor.tree:histories",
    },
    attention={"doctor": 200},
)

OURS = (
    *(TEAM, MAIL, CHAT, TASKS, OVERVIEW, QUESTIONS),
    *_of_folder("repository", "reservations"),
    *(SESSIONS, PROOF),
    *_of_folder("repository", "worktrees"),
    *_of_folder("pool", "free"),
    *_of_folder("pool", "returns"),
    *_of_folder("pool", "leases"),
    *_of_folder("pool", "pool"),
    *_of_folder("usage", "usage"),
    *_of_folder("telemetry", "telemetry"),
    *_of_folder("timeline", "timeline"),
    MACHINES,
    *_of_folder("demo", "demo"),
    MAINTENANCE,
)
SECTIONS = (
    *("Every day", "Team", "Mail", "Tasks", "Files", "Conversations", "Looking", "Machines", "Maintenance"),
    MACHINERY,
)
"""The sections of `--help`, in order; those of other packages follow."""
ALL = Features(tuple(one for one in OURS if not one.switch), tuple(one for one in OURS if one.switch))
"""All of them but those that have to be switched on, for whatever belongs to no session."""
