"""The wheel and the sdist: the same bytes for everybody, and all in them that belongs there."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

import pytest

from releasing import facts
from releasing.build import build

VENDORED = "multi_agent_mcp/web/static/vendor"

if not (facts.REPOSITORY / ".git").exists():
    pytest.skip("only a clone has commits to build", allow_module_level=True)


@pytest.fixture
def narrow_umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.slow
def test_whoever_builds_a_commit_gets_the_same_bytes_and_all_that_belongs_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    sdist, wheel = build(tmp_path)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("LC_ALL", "C")
    request.getfixturevalue("narrow_umask")
    for first, second in zip((sdist, wheel), build(tmp_path / "elsewhere"), strict=True):
        assert first.name == second.name
        assert hashlib.sha256(first.read_bytes()).digest() == hashlib.sha256(second.read_bytes()).digest(), first.name
    _holds_the_licence_the_types_and_the_registrys_marker(wheel)
    _is_the_commit(sdist)


def _holds_the_licence_the_types_and_the_registrys_marker(built: Path) -> None:
    with zipfile.ZipFile(built) as wheel:
        names = wheel.namelist()
        (metadata_name,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(wheel.read(metadata_name).decode())
    assert metadata["Version"] == facts.VERSION
    assert metadata["License-Expression"] == "MIT"
    assert set(metadata.get_all("License-File", [])) >= {"LICENSE", f"{VENDORED}/fuzzysort-4.0.2.LICENSE"}
    assert f"{VENDORED}/fuzzysort-4.0.2.js" in names
    assert f"mcp-name: {facts.registry_name()}" in str(metadata.get_payload())
    assert f"Repository, {facts.address()}" in metadata.get_all("Project-URL", [])
    assert metadata_name.replace("METADATA", "licenses/LICENSE") in names
    wanted = ("py.typed", "texts/ja.yaml", "texts/skill.ja.md", "hosts/claude.yaml", "examples/agents/scripted.py")
    assert {f"multi_agent_mcp/{name}" for name in wanted} <= set(names)
    assert not [name for name in names if name.startswith(("tests/", "releasing/"))]


def _is_the_commit(built: Path) -> None:
    with tarfile.open(built) as sdist:
        inside = {member.name.partition("/")[2] for member in sdist.getmembers() if member.isfile()}
    listed = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", "-z", "HEAD"],
        cwd=facts.REPOSITORY,
        check=True,
        capture_output=True,
        encoding="utf-8",
    )
    committed = set(listed.stdout.rstrip("\0").split("\0"))
    assert inside - committed == {"PKG-INFO"}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "multi_agent_mcp/py.typed", "scripts/test"} <= inside
    assert {name for name in committed if name.startswith(("multi_agent_mcp/", "tests/"))} <= inside
