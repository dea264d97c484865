"""The house: imports point down only, and only the rooms made for it know a library or the environment."""

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
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.texts import LANGUAGES, catalogue

PACKAGE = Path(multi_agent_mcp.__file__).parent
NAME = "multi_agent_mcp"

BELOW = {
    "errors": set[str](),
    "texts": {"errors"},
    "environment": set[str](),
    "config": {"errors", "texts", "environment"},
    "domain": {"errors", "config", "texts"},
    "store": {"domain", "errors", "config", "texts"},
    "services": {"store", "domain", "errors", "config", "texts"},
    "notify": {"store", "domain", "errors", "config", "texts"},
}
"""What each layer may import besides itself; `bootstrap` and the entry layers wire and may import all of these."""

ENTRIES = {"cli", "web", "server", "relay"}
STARTS_SERVER = {"cli"}  # `serve` is a command: it hands over to the server layer

ROOMS = {
    "typer": {"cli"},
    "cryptography": {"domain"},
    "rich": {"cli"},
    "mcp": {"server"},
    "mcp_types": {"server"},
    "pydantic": {"server"},
    "libtmux": {"notify"},
    "starlette": {"web"},
    "uvicorn": {"web"},
    "nats": {"relay"},
    "frontmatter": {"store"},
    "watchdog": {"store"},
}
"""Which layers may know a library."""


CODES = """invalid_id invalid_arguments invalid_session unauthorized wrong_session_purpose agent_not_found
agent_not_assigned_to_project task_not_found conversation_not_found delegation_not_found execution_not_found
message_not_found invalid_status_transition already_exists not_participant conversation_not_active owner_waiting
polling_blocked content_too_large storage_error"""


def module_name(path: Path) -> str:
    parts = [NAME, *path.relative_to(PACKAGE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the package, parsed."""
    return {module_name(path): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


def layer(module: str) -> str:
    """The first name below the package: `store` for `multi_agent_mcp.store.files`."""
    return [*module.split("."), ""][1]


def for_types_only(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def statements(body: list[ast.stmt], *, types: bool) -> Iterator[ast.AST]:
    """All nodes below, without what stands under `if TYPE_CHECKING` unless `types`."""
    pending: list[ast.AST] = list(body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.stmt) and for_types_only(node) and not types:
            continue
        yield node
        pending.extend(ast.iter_child_nodes(node))


def imported(module: str, *, types: bool = True) -> set[str]:
    """The modules a module imports, inside functions too; of our own package down to the very module."""
    found: set[str] = set()
    for node in statements(modules()[module].body, types=types):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name for name in whole if name in modules()} or {str(node.module)}
    return found


def own(names: set[str]) -> set[str]:
    return {name for name in names if name.split(".")[0] == NAME}


def test_the_package_is_seen() -> None:
    assert len(modules()) > 40
    assert f"{NAME}.store.files" in imported(f"{NAME}.store.folder")


@pytest.mark.parametrize("upper", BELOW)
def test_a_layer_imports_only_what_lies_below_it(upper: str) -> None:
    wrong = {
        (module, name)
        for module in modules()
        if layer(module) == upper
        for name in own(imported(module))
        if layer(name) not in BELOW[upper] | {upper, ""}
    }
    assert wrong == set()


def test_entry_layers_do_not_import_each_other() -> None:
    wrong = {
        (module, name)
        for module in modules()
        if layer(module) in ENTRIES
        for name in own(imported(module))
        if layer(name) in ENTRIES - {layer(module)}
        and not (layer(module) in STARTS_SERVER and layer(name) in {"server", "web", "relay"})
    }
    assert wrong == set()


def test_every_module_belongs_to_a_known_layer() -> None:
    known = {*BELOW, *ENTRIES, "bootstrap", "__main__", ""}
    assert {module for module in modules() if layer(module) not in known} == set()


def test_only_the_bootstrap_and_the_entry_layers_know_services_and_notifiers_at_once() -> None:
    both = {
        module
        for module in modules()
        if {"services", "notify"} <= {layer(name) for name in own(imported(module, types=False))}
    }
    assert {layer(module) for module in both} <= {"bootstrap", *ENTRIES}


def test_imports_run_in_no_circle() -> None:
    graph = {module: own(imported(module, types=False)) & set(modules()) - {module} for module in modules()}
    done: set[str] = set()
    while True:
        free = {module for module, needs in graph.items() if module not in done and needs <= done}
        if not free:
            break
        done |= free
    assert set(graph) - done == set()


@pytest.mark.parametrize("library", ROOMS)
def test_only_its_own_room_knows_a_library(library: str) -> None:
    users = {module for module in modules() if any(name.split(".")[0] == library for name in imported(module))}
    assert {layer(module) for module in users} <= ROOMS[library]


def test_a_command_waits_for_no_library_that_only_others_need() -> None:
    listed = "import sys, multi_agent_mcp.cli.main; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", listed], capture_output=True, encoding="utf-8", check=True).stdout
    assert "typer" in loaded.split()
    assert {"libtmux", "watchdog", "starlette", "uvicorn", "jinja2", "mcp", "rich", "cryptography"} & set(
        loaded.split()
    ) == set()


def test_only_the_settings_read_the_environment() -> None:
    readers = {
        module
        for module, tree in modules().items()
        for node in ast.walk(tree)
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
    assert users == {f"{NAME}.config", f"{NAME}.cli.hook", f"{NAME}.__main__"}


def placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def test_both_languages_have_the_same_keys_and_placeholders() -> None:
    ja, en = catalogue("ja"), catalogue("en")
    assert ja.keys() == en.keys()
    assert {key for key in sorted(ja.keys()) if placeholders(ja(key)) != placeholders(en(key))} == set()


def refusals() -> dict[str, type[Refusal]]:
    return {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, Refusal) and kind is not Refusal
    }


def raised() -> Iterator[tuple[str, str, set[str] | None]]:
    """Every refusal that the code makes: where, its key, and the values it is given (None: not to be told)."""
    for module, tree in modules().items():
        called: set[int] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in refusals():
                called.add(id(node.func))
                kind = refusals()[node.func.id]
                first = node.args[0] if node.args else None
                if first is not None and not isinstance(first, ast.Constant):
                    continue
                key = str(first.value) if isinstance(first, ast.Constant) else kind.default_key or kind.code
                names = {keyword.arg for keyword in node.keywords}
                given = None if None in names else {str(name) for name in names}
                yield f"{module}:{node.lineno}", f"error.{key}", given
            elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Name) and node.exc.id in refusals():
                kind = refusals()[node.exc.id]
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
    """Every literal key that the catalogue is asked for: `texts("doorbell.one", …)`, `self.texts(…)`."""
    for module, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                asked = ast.unparse(node.func).split(".")[-1]
                if asked in {"texts", "_texts"} and isinstance(node.args[0].value, str):
                    yield f"{module}:{node.lineno}", node.args[0].value


def test_every_text_that_is_asked_for_is_in_the_catalogue() -> None:
    found = list(text_keys())
    assert len(found) > 10
    assert {(where, key) for where, key in found if key not in catalogue("ja")} == set()
