"""What pages show can be typed: every command, the blocks of YAML, and the file format's examples."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from multi_agent_mcp.cli.main import app
from multi_agent_mcp.domain.message import signed_bytes
from multi_agent_mcp.settings import read_settings
from multi_agent_mcp.wiring import Services
from tests.cli.conftest import Ask, Run
from tests.programs import REPOSITORY

PAGES = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("multi_agent_mcp/texts/*.md")]
TYPED = re.compile(r"^(?:    )?(?:[A-Z_]+=\S+ )?(?:uvx --from \S+ )?multi-agent-mcp +([^\s#].*)$", re.MULTILINE)
WITHIN = re.compile(r"`multi-agent-mcp (?!signature )([a-z][^`]*)`")
OURS = re.compile(r"`((?:task|agent|conversation|workspace|doctor|host|wait|checks) [a-z][a-z-]+(?: [^`]*)?)`")
PLACEHOLDER = re.compile(r"[A-Z][A-Z_]+|…")


def blocks(page: str, language: str) -> list[str]:
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands(page: Path) -> Iterator[str]:
    """What a page says to type, whole lines first, then what its sentences name."""
    text = page.read_text(encoding="utf-8")
    for line in TYPED.findall(text):
        yield from (part.strip() for part in re.split(r" (?:&&|\|\||;|\|) | #", line)[:1])
    yield from WITHIN.findall(text)
    yield from OURS.findall(text)


def fault(words: str) -> str | None:
    """Why a command cannot be typed so; a placeholder stands for any argument."""
    command: click.Command = app
    try:
        rest = shlex.split(words.partition(" < ")[0].rstrip("."))
    except ValueError:
        return "quotation marks"
    context = click.Context(app)
    while isinstance(command, click.Group):
        below = command.get_command(context, rest[0]) if rest else None
        if below is None:
            return None if not rest or rest[0].startswith("-") or command is not app else f"no command {rest[0]}"
        command, rest = below, rest[1:]
    if command.name in ("serve", "hook"):  # they parse their arguments themselves
        return None
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    strange = [word for word in rest if re.match(r"--[a-z]", word) and word.partition("=")[0] not in {*known, "--help"}]
    return f"no option {strange}" if strange and "--" not in rest[: rest.index(strange[0])] else None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_a_command_that_a_page_names_can_be_typed(page: Path) -> None:
    if page.name == "CHANGELOG.md":
        return
    assert {words: why for words in commands(page) if (why := fault(words)) is not None} == {}


@pytest.mark.parametrize("page", ["docs/daily.md", "docs/small.md", "docs/tour.md", "README.md", "README.ja.md"])
def test_the_lines_of_a_page_take_their_arguments(page: str) -> None:
    for line in (line for block in blocks(page, "sh") for line in TYPED.findall(block)):
        command, rest = app, shlex.split(line, comments=True)
        context = click.Context(app)
        while (
            isinstance(command, click.Group) and rest and (below := command.get_command(context, rest[0])) is not None
        ):
            command, rest = below, rest[1:]  # type: ignore[assignment]
        try:
            command.make_context("multi-agent-mcp", rest) if command is not app else None
        except click.BadParameter:
            assert any(map(PLACEHOLDER.fullmatch, rest)), line


def test_the_blocks_of_yaml_make_teams_and_settings(run: Run, tmp_path: Path) -> None:
    (team,) = blocks("docs/team.md", "yaml")
    (tmp_path / "team.yaml").write_text(team, encoding="utf-8")
    made = run("init")
    assert made.exit_code == 0, made.output
    (telemetry,) = blocks("docs/telemetry.md", "yaml")
    for line in telemetry.splitlines():
        (tmp_path / "session.yaml").write_text(line, encoding="utf-8")
        assert read_settings(tmp_path / "session.yaml").of("telemetry") is not None


def test_a_message_as_the_format_shows_it_is_read(services: Services, run: Run, tmp_path: Path) -> None:
    (block,) = blocks("docs/format.md", "sh")
    here = re.sub(r"/\w+/note.md", f"{tmp_path}/note.md", block)
    here = here.replace(".multi-agent-mcp/demo", shlex.quote(str(services.path)))
    subprocess.run(["sh", "-ec", here], check=True)
    assert "A note from a person" in run("read", "worker-a").stdout


def test_another_program_signs_as_the_format_says(services: Services, ask: Ask) -> None:
    (block,) = blocks("docs/format.md", "python")
    ask("send", "worker-a", "Please look.", "--as", "admin")
    (message,) = services.unread_mail("worker-a")
    line, _, body = signed_bytes(message).partition(b"\n")
    said = {"HKDF": HKDF, "SHA256": SHA256, "Ed25519PrivateKey": Ed25519PrivateKey, "line": line, "body": body}
    said["key_file_text"] = (services.path / "secrets" / "admin.key").read_text(encoding="ascii")
    exec(block, said)  # noqa: S102 - what readers are told to do
    assert said["signature"] == message.signature
