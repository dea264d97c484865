"""Which version of a host is installed is told by where it is (docs/hosts.md)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from multi_agent_mcp.hosts import hosts
from multi_agent_mcp.system.host_versions import Newer, newer_hosts

NEW, OLD = "999.1.0", "0.0.9"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only directory on PATH."""
    bin_directory = tmp_path / "bin"
    bin_directory.mkdir()
    monkeypatch.setenv("PATH", str(bin_directory))
    return bin_directory


def program(path: Path, link: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\nexit 1\n")
    path.chmod(0o755)
    link.unlink(missing_ok=True)
    link.symlink_to(path)


def by_npm(directory: Path, package: str, version: str, link: Path) -> None:
    home = directory / "lib" / "node_modules" / package
    program(home / "bin" / "cli.js", link)
    (home / "package.json").write_text(json.dumps({"name": package, "version": version}), encoding="utf-8")


def test_every_host_says_with_which_version_it_was_proven() -> None:
    assert all(host.proven[0].isdigit() for host in hosts().values())


def test_a_newer_host_is_named_once_wherever_it_was_installed(tmp_path: Path, installed: Path) -> None:
    by_npm(tmp_path, "@anthropic-ai/claude-code", NEW, installed / "claude")
    program(tmp_path / "Cellar" / "codex" / NEW / "bin" / "codex", installed / "codex")
    commands = ["claude --mcp-config {mcp_config}", "claude", "codex {mcp_config}", None, "vim", "gemini {mcp_config}"]
    known = hosts()
    assert newer_hosts(commands) == [
        Newer(name, known[name].title, NEW, known[name].proven) for name in ("claude", "codex")
    ]
    program(tmp_path / "share" / "claude" / "versions" / NEW, installed / "claude")
    assert [host.version for host in newer_hosts(["claude"])] == [NEW]


def test_the_proven_an_older_and_an_unknown_version_are_not_named(tmp_path: Path, installed: Path) -> None:
    by_npm(tmp_path, "@anthropic-ai/claude-code", hosts()["claude"].proven, installed / "claude")
    by_npm(tmp_path, "@openai/codex", OLD, installed / "codex")
    program(tmp_path / "opt" / "gemini", installed / "gemini")
    assert newer_hosts(["claude", "codex", "gemini", "claude 'unclosed"]) == []
    (tmp_path / "lib/node_modules/@openai/codex/package.json").write_text("{", encoding="utf-8")
    assert newer_hosts(["codex"]) == []
