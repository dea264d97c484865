"""The architecture, held: imports point down only, and only the packages made for it know a library, the disk or the
environment. docs/architecture.md draws what is written down here."""

from __future__ import annotations

import ast
import string
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import multi_agent_mcp
from multi_agent_mcp import errors
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.texts import CONSOLE, LANGUAGES, PEOPLE, catalogue
from multi_agent_mcp.wiring import Services

PACKAGE = Path(multi_agent_mcp.__file__).parent
NAME = "multi_agent_mcp"

OPTIONAL = ("repository", "telemetry", "pool", "usage", "timeline", "demo")
"""The folders of optional features: each has parts of every layer, and nothing outside imports it."""

LAYERS = (
    ("errors", "environment"),
    ("trace",),
    ("texts",),
    ("config", "programs", "yaml_files"),
    ("features",),
    ("settings",),
    ("domain",),
    ("hosts",),
    ("host_rules",),
    ("system",),
    ("host_files", "project_instructions"),
    ("store",),
    ("contributions",),
    ("session",),
    ("services", "doorbell", "host_config", "hub"),
    ("hooks",),
    ("diagnosis",),
    ("wiring",),
    ("bootstrap",),
    ("windows",),
    ("server", "web"),
    ("cli", "toolkit"),
    OPTIONAL,
    ("pytest_plugin",),
    ("__main__",),
)
"""The layers, lowest first. A package may import itself and packages in earlier lines, but not others in its own
line."""

SERVICES = (
    ("answer_budget", "background"),
    ("validation", "operations"),
    ("team",),
    ("mail", "mail_search"),
    ("sessions",),
    ("notifications",),
    ("questions",),
    ("tasks",),
    ("chat",),
    ("search",),
    ("overview",),
    ("turn",),
    ("doctor",),
    ("upkeep", "unchanged"),
    ("attention",),
    ("glance",),
)
"""The layers inside `services/`, in the same form."""

LIBRARIES = {
    "click": {"cli"},
    "cryptography": {"hub"},
    "nacl": {"domain"},
    "pathspec": {"domain"},
    "pytest": {"pytest_plugin"},
    "libtmux": {"doorbell"},
    "rich": {"cli"},
    "textual": {"cli"},
    "mcp": {"server"},
    "mcp_types": {"server"},
    "pydantic": {"server"},
    "starlette": {"web"},
    "uvicorn": {"web"},
    "nats": {"hub"},
    "nkeys": {"hub"},
    "frontmatter": {"store"},
    "tomlkit": {"host_files"},
    "opentelemetry": {"telemetry"},
    "watchdog": {"system"},
}
"""Library → the packages that may import it."""

PARTS = {"commands": "cli", "views": "cli", "tools": "server", "web": "web"}
"""Modules of optional folders → the layer whose part they are."""

DOORS = {"cli", "web", "server", "toolkit", "pytest_plugin"}

FILE_CALLS = {
    "unlink", "write_text", "write_bytes", "read_text", "read_bytes", "mkdir", "rmdir", "iterdir", "glob", "rglob",
    "symlink_to", "hardlink_to", "rename", "rmtree", "read_file", "sync_directory", "make_directory", "write_new",
}  # fmt: skip
"""Calls that read or change files."""
TOUCH_FILES = {
    "store": "the session's files",
    "hub.share_directory": "where the relay's socket is",
    "hub.server": "the hub's own directory, which the server it starts writes in, too",
    "telemetry.exporting": "the file of spans, where session.yaml says",
    "system": "other programs' files, and what every write is made of",
    "config": "whether there is a session",
    "settings": "session.yaml, before there is a session",
    "yaml_files": "what people write",
    "texts": "the catalogue in the package",
    "cli.at_hand": "whether session.yaml says anything of features, before YAML is imported",
    "hosts": "the descriptions of hosts in the package",
    "doorbell.tmux.profiles": "profiles of hosts beside the sessions",
    "repository.edit_log": "the same, for edits",
    "hooks.first_look": "the hook's own state: `hook` cannot wait for what `store` imports",
    "doorbell.tmux.team_panes": "the directory of tmux's socket",
    "timeline.commands": "the picture, where its user wants it",
    "demo": "the demo's own temporary directories",
    "web.link_page": "the page that leads a browser to the console",
}
"""Modules that may access files → the files that they access."""

CODES = """invalid_id invalid_arguments invalid_session unauthorized wrong_session_purpose agent_not_found
agent_not_assigned_to_project task_not_found conversation_not_found delegation_not_found execution_not_found
message_not_found question_not_found question_closed invalid_status_transition not_proven not_committed already_exists
has_subordinates not_participant conversation_not_active not_answered owner_waiting polling_blocked
content_too_large storage_error tmux_timeout hub_unreachable hub_replaced untrusted_session reserved
reservation_not_found"""


def module_name(path: Path) -> str:
    parts = [NAME, *path.relative_to(PACKAGE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the package, parsed."""
    return {module_name(path): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def nodes(module: str) -> tuple[ast.AST, ...]:
    """Everything in a module."""
    return tuple(ast.walk(modules()[module]))


def layer(module: str) -> str:
    """The first name below the package: `store` for `multi_agent_mcp.store.durable_files`."""
    return [*module.split("."), ""][1]


def part_of(module: str) -> str:
    """The layer, also of what an optional folder has of it: its commands are of `cli`."""
    first, last = layer(module), module.rpartition(".")[2]
    return PARTS.get(last, first) if first in OPTIONAL else first


def for_types_only(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and any(
        isinstance(part, ast.Name) and part.id == "TYPE_CHECKING" for part in ast.walk(node.test)
    )


def statements(body: list[ast.stmt], *, types: bool) -> Iterator[ast.AST]:
    """Yields all statements below, without those under `if TYPE_CHECKING` unless `types`."""
    pending: list[ast.AST] = list(body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.stmt) and for_types_only(node) and not types:
            continue
        yield node
        pending.extend(child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))


@cache
def imported(module: str, *, types: bool = True) -> frozenset[str]:
    """The modules a module imports, inside functions too; of our own package down to the very module."""
    found: set[str] = set()
    for node in statements(modules()[module].body, types=types):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name for name in whole if name in modules()} or {str(node.module)}
    return frozenset(found)


def own(names: frozenset[str]) -> set[str]:
    return {name for name in names if name.split(".")[0] == NAME}


def edges(*, types: bool = True) -> Iterator[tuple[str, str]]:
    """Yields every import between our modules: the importing and the imported module."""
    for module in modules():
        for name in own(imported(module, types=types)) & set(modules()) - {module}:
            yield module, name


def rank(part: str, order: tuple[tuple[str, ...], ...]) -> int:
    return next(number for number, row in enumerate(order) if part in row)


def climbs(module: str, name: str, depth: int, order: tuple[tuple[str, ...], ...]) -> bool:
    """Whether an import leads to a higher layer, or to another package of the same one."""
    upper, lower = module.split(".")[depth], name.split(".")[depth]
    return upper != lower and rank(lower, order) >= rank(upper, order)


def test_the_package_is_seen() -> None:
    assert len(modules()) > 40
    assert f"{NAME}.store.directory" in imported(f"{NAME}.store.collection")


def test_every_module_belongs_to_a_known_layer() -> None:
    known = {part for row in LAYERS for part in row} | {""}
    assert {module for module in modules() if layer(module) not in known} == set()
    parts = {part for row in SERVICES for part in row}
    assert {module for module in modules() if layer(module) == "services" and module.count(".") > 1} == {
        module for module in modules() if layer(module) == "services" and [*module.split("."), ""][2] in parts
    }


def test_imports_point_down_only() -> None:
    inner = [(module, name) for module, name in edges() if layer(module) and layer(name)]
    assert {(module, name) for module, name in inner if climbs(module, name, 1, LAYERS)} == set()


def test_nothing_outside_imports_an_optional_folder() -> None:
    wrong = {(module, name) for module, name in edges() if layer(name) in OPTIONAL and layer(module) != layer(name)}
    assert wrong == set()


def test_imports_point_down_inside_services_too() -> None:
    inner = [
        (module, name)
        for module, name in edges()
        if layer(module) == layer(name) == "services" and module.count(".") > 1 and name.count(".") > 1
    ]
    assert {(module, name) for module, name in inner if climbs(module, name, 2, SERVICES)} == set()


def test_imports_run_in_no_circle_types_included() -> None:
    graph: dict[str, set[str]] = {module: set() for module in modules()}
    for module, name in edges():
        graph[module].add(name)
    done: set[str] = set()
    while free := {module for module, needs in graph.items() if module not in done and needs <= done}:
        done |= free
    assert set(graph) - done == set()


def is_null_device(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "devnull"


def calls(module: str) -> Iterator[str]:
    """The last name of everything that is called, and `open` in all its forms but of the null device."""
    for node in nodes(module):
        if isinstance(node, ast.Call) and not any(is_null_device(argument) for argument in node.args):
            if isinstance(node.func, ast.Attribute):
                is_os_open = node.func.attr == "open" and ast.unparse(node.func.value) in {"os", "io"}
                yield "open" if is_os_open else node.func.attr if node.func.attr != "open" else ""
            elif isinstance(node.func, ast.Name):
                yield node.func.id


POSITIONAL = 6
"""As many arguments of one call a reader can tell apart by their places."""


def constructors() -> frozenset[str]:
    return frozenset(node.name for module in modules() for node in nodes(module) if isinstance(node, ast.ClassDef))


def positional(call: ast.Call) -> int:
    """How many arguments stand at their places, those of an unpacked display included."""
    return sum(
        len(part.value.elts) if isinstance(part, ast.Starred) and isinstance(part.value, ast.Tuple | ast.List) else 1
        for part in call.args
    )


def test_a_constructor_with_many_arguments_is_called_by_keywords() -> None:
    made = constructors() | {"cls"}
    wrong = {
        f"{module}:{node.lineno}"
        for module in modules()
        for node in nodes(module)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).rpartition(".")[2] in made
        and positional(node) > POSITIONAL
    }
    assert wrong == set()


def may_touch_files(module: str) -> bool:
    inside = module.removeprefix(f"{NAME}.")
    return any(inside == name or inside.startswith(f"{name}.") for name in TOUCH_FILES)


def test_only_the_store_touches_the_files_of_a_session() -> None:
    wrong = {
        (module, name)
        for module in modules()
        if not may_touch_files(module)
        for name in calls(module)
        if name in FILE_CALLS | {"open"}
    }
    assert wrong == set()


def test_the_doors_do_not_reach_through_the_services_into_the_store() -> None:
    wrong = {
        (module, ast.unparse(node))
        for module in modules()
        if part_of(module) in DOORS
        for node in nodes(module)
        if isinstance(node, ast.Attribute) and node.attr in {"workspace", "registry"}
    }
    assert wrong == set()
    assert {(module, name) for module, name in edges() if part_of(module) in DOORS and layer(name) == "store"} == set()


@pytest.mark.parametrize("library", LIBRARIES)
def test_only_its_own_package_knows_a_library(library: str) -> None:
    users = {module for module in modules() if any(name.split(".")[0] == library for name in imported(module))}
    assert {part_of(module) for module in users} <= LIBRARIES[library]


def test_tmux_is_called_in_one_place_but_where_it_takes_over_this_terminal() -> None:
    """What is not a call of `Server.cmd`, which ends, and takes what it types on standard input."""
    begins = {
        module.removeprefix(f"{NAME}.")
        for module in modules()
        for node in nodes(module)
        if isinstance(node, ast.List) and node.elts and ast.unparse(node.elts[0]) == "'tmux'"
    }
    assert begins == {"doorbell.tmux.client", "windows.attachment", "demo.stage"}


def loaded_by(*arguments: str, given: str = "") -> set[str]:
    """The modules in the process when a command has ended, `given` this on its standard input."""
    program = "import atexit, os, sys; os._exit = sys.exit; atexit.register(lambda: print('\\n', *sys.modules)); "
    program += f"sys.argv[1:] = {list(arguments)}; from multi_agent_mcp.__main__ import main; main()"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, input=given, capture_output=True, encoding="utf-8", check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_the_list_of_commands_imports_none_of_them() -> None:
    loaded = loaded_by("--help")
    own = {name for name in loaded if name.startswith(f"{NAME}.")}
    records = (f"{folder}{part}" for folder in OPTIONAL for part in ("", ".feature"))
    table = ("features", "cli.at_hand", "features.ours", *records)
    assert own <= {f"{NAME}.{name}" for name in ("__main__", "cli", "cli.main", "environment", "errors", *table)}
    assert "yaml" not in loaded


def test_counting_mail_waits_for_nothing_that_rings_or_reads(services: Services) -> None:
    loaded = loaded_by("unread", "--root", str(services.root))
    assert f"{NAME}.store.workspace" in loaded
    unneeded = (
        "doorbell",
        "repository.reservation",
        "services.turn",
        "services.validation",
        "store.shared_collection",
        "system.process",
    )
    entities = (f"domain.{name}" for name in ("delivery", "notification", "question", "stuck", "task"))
    assert (
        loaded & {"filelock", "libtmux", "subprocess", *(f"{NAME}.{name}" for name in (*unneeded, *entities))} == set()
    )


def test_sending_mail_waits_for_nothing_that_types_or_counts_tokens(services: Services) -> None:
    loaded = loaded_by("send", "admin", "hello", "--root", str(services.root))
    assert f"{NAME}.doorbell.ringing" in loaded
    unneeded = (
        "domain.question",
        "domain.stuck",
        "doorbell.tmux",
        "usage.limits",
        "usage.tokens",
        "telemetry.recording",
    )
    assert (
        loaded & {"concurrent.futures", "filelock", "libtmux", "sqlite3", *(f"{NAME}.{name}" for name in unneeded)}
        == set()
    )


def test_a_hook_that_tells_of_mail_waits_for_nothing_else(services: Services, owner: Agent) -> None:
    services.messages.send(owner, Draft(content="hello", receiver_id="admin"))
    event = '{"hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_input": {"command": "ls"}}'
    loaded = loaded_by("hook", "--host", "claude", "--agent", "admin", "--root", str(services.root), given=event)
    assert {f"{NAME}.hooks.answers", f"{NAME}.store.inbox"} <= loaded
    unneeded = [f"services.{name}" for name in ("chat", "mail", "overview", "tasks", "turn")]
    unneeded += [
        "repository.worktrees",
        "usage.tokens",
        "usage.ledger",
        "usage.usage",
        "doorbell.tmux",
        "telemetry.recording",
    ]
    assert loaded & {"asyncio", "filelock", "libtmux", "sqlite3", *(f"{NAME}.{name}" for name in unneeded)} == set()


def test_a_command_waits_for_no_library_that_only_others_need() -> None:
    loaded = loaded_by("unread", "--help")
    assert f"{NAME}.cli.mail" in loaded
    heavy = {
        "typer",
        "pydantic",
        "watchdog",
        "starlette",
        "uvicorn",
        "jinja2",
        "mcp",
        "rich",
        "textual",
        "cryptography",
        "nacl",
        "nats",
        "nkeys",
        "libtmux",
        "asyncio",
    }
    assert heavy & (loaded | loaded_by("--help")) == set()
    assert {f"{NAME}.cli.{other}" for other in ("tasks", "up_down", "doctor", "serve")} & loaded == set()
    assert f"{NAME}.bootstrap" not in loaded


def test_what_an_extra_installs_is_needed_by_its_own_modules_alone() -> None:
    """A plain installation has neither NATS nor OpenTelemetry's SDK."""
    importing = """
import importlib, sys
for name in ("nats", "nkeys", "opentelemetry.sdk", "opentelemetry.exporter"):
    sys.modules[name] = None
for name in sys.argv[1:]:
    importlib.import_module(name)
"""
    own = (f"{NAME}.hub", f"{NAME}.telemetry.exporting", f"{NAME}.__main__")
    subprocess.run(
        [sys.executable, "-c", importing, *(name for name in modules() if not name.startswith(own))], check=True
    )


def test_only_the_settings_read_the_environment() -> None:
    readers = {
        module
        for module in modules()
        for node in nodes(module)
        if (isinstance(node, ast.Attribute) and node.attr in {"environ", "environb", "getenv", "putenv"})
        or (
            isinstance(node, ast.ImportFrom)
            and node.module == "os"
            and {"environ", "getenv"} & {a.name for a in node.names}
        )
    }
    assert readers == {f"{NAME}.environment"}
    users = {module for module in modules() if f"{NAME}.environment" in imported(module)}
    # `hook` cannot wait for what `config` imports, and `__main__` takes the passkey out before anything else happens.
    before_a_session = {
        f"{NAME}.bootstrap",
        f"{NAME}.cli.context",
        f"{NAME}.cli.main",
        f"{NAME}.cli.for_hosts.serve",
        f"{NAME}.cli.at_hand",
    }  # they speak the language of the locale
    assert (
        users
        == {f"{NAME}.{module}" for module in ("config", "programs", "trace", "cli.for_hosts.hook", "__main__")}
        | before_a_session
    )


def placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


@pytest.mark.parametrize("part", [None, CONSOLE, PEOPLE])
def test_both_languages_have_the_same_keys_and_placeholders(part: str | None) -> None:
    ja, en = catalogue("ja", part), catalogue("en", part)
    assert ja.keys() == en.keys()
    only_english = {"problem", "words"}  # what a library or the operating system says, which is English
    differing = {key for key in sorted(ja.keys()) if placeholders(ja(key)) != placeholders(en(key)) - only_english}
    assert differing == set()


def refusals() -> dict[str, type[Refusal]]:
    return {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, Refusal) and kind is not Refusal
    }


def raised() -> Iterator[tuple[str, str, set[str] | None]]:
    """Yields every refusal in the code: its place, its key, and the names of its values (None: unknown)."""
    kinds = refusals()
    for module in modules():
        for node in nodes(module):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in kinds:
                kind = kinds[node.func.id]
                first = node.args[0] if node.args else None
                if first is not None and not isinstance(first, ast.Constant):
                    continue
                key = str(first.value) if isinstance(first, ast.Constant) else kind.default_key or kind.code
                names = {keyword.arg for keyword in node.keywords}
                given = None if None in names else {str(name) for name in names}
                yield f"{module}:{node.lineno}", f"error.{key}", given
            elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Name) and node.exc.id in kinds:
                kind = kinds[node.exc.id]
                yield f"{module}:{node.lineno}", f"error.{kind.default_key or kind.code}", set()


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_refusal_can_be_put_into_words(language: str) -> None:
    texts = catalogue(language)
    found = list(raised())
    assert len(found) > 50
    wrong = {
        (where, key)
        for where, key, given in found
        if key not in texts or (given is not None and not placeholders(texts(key)) <= given)
    }
    assert wrong == set()


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_code_of_the_contract_has_a_sentence(language: str) -> None:
    codes = {kind.code for kind in refusals().values()}
    assert " ".join(sorted(codes)) == " ".join(sorted(CODES.split()))
    assert {code for code in codes if f"error.{code}" not in catalogue(language)} == set()


def text_keys() -> Iterator[tuple[str, str]]:
    """Yields every literal key that is looked up in the catalogue: `texts("doorbell.one", …)`, `self.texts(…)`."""
    for module in modules():
        for node in nodes(module):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                asked = ast.unparse(node.func).split(".")[-1]
                if asked in {"texts", "_texts"} and isinstance(node.args[0].value, str):
                    yield f"{module}:{node.lineno}", node.args[0].value


def test_every_text_that_is_asked_for_is_in_the_catalogue() -> None:
    found = list(text_keys())
    assert len(found) > 10
    texts = catalogue("ja") | catalogue("ja", PEOPLE)
    assert {(where, key) for where, key in found if key not in texts} == set()
