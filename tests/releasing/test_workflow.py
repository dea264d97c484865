"""The workflow of a public forge: it cannot run here, so each of its commands has to be one that does."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from releasing import facts

WORKFLOW = yaml.safe_load((facts.REPOSITORY / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")


def _steps() -> Iterator[dict[str, Any]]:
    for job in WORKFLOW["jobs"].values():
        yield from job["steps"]


COMMANDS = sorted({line for step in _steps() for line in step.get("run", "").splitlines()})


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_a_script_that_runs_here(command: str) -> None:
    script, *_ = shlex.split(command)
    assert script.startswith("scripts/")
    assert os.access(facts.REPOSITORY / script, os.X_OK)
    told = subprocess.run(
        [facts.REPOSITORY / script, "--help"], capture_output=True, encoding="utf-8", check=False, cwd="/"
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout.strip()


def test_it_tests_on_linux_and_macos_with_every_python_that_the_package_names() -> None:
    matrix = WORKFLOW["jobs"]["test"]["strategy"]["matrix"]
    assert {name.partition("-")[0] for name in matrix["os"]} == {"ubuntu", "macos"}
    named = (item.rpartition(" :: ")[2] for item in facts.project()["classifiers"] if "Python :: 3." in item)
    assert matrix["python"] == list(named)
    assert {"scripts/test", "scripts/demo", "scripts/build", "scripts/release"} <= set(COMMANDS)


def test_it_publishes_what_was_tested_and_attested_without_any_secret() -> None:
    release = WORKFLOW["jobs"]["release"]
    assert set(release["needs"]) == set(WORKFLOW["jobs"]) - {"release"}
    assert release["permissions"]["id-token"] == "write"
    assert "secrets." not in str(WORKFLOW)
    used = [step["uses"] for step in _steps() if "uses" in step]
    assert all(map(PINNED.fullmatch, used)), "a tag can be moved to other code"
    assert [name.partition("@")[0].rpartition("/")[2] for name in used][-3:] == [
        "download-artifact",
        "attest-build-provenance",
        "gh-action-pypi-publish",
    ]
