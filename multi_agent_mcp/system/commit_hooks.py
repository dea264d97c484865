"""Who made a commit (docs/protocol.md, Who did this): in the worktrees of agents git's hooks are ours, which run those
that git would run without them, and name task and agent in each message (`Task:`, `Agent:`).

All of it is in the worktree's own git directory and goes with it. Git reads the configuration there only with
`extensions.worktreeConfig`, which is set with the first such worktree and taken back with the last, if we set it."""

from __future__ import annotations

import logging
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.system.commits import own_directory
from multi_agent_mcp.system.file_status import common_directory, is_own_directory
from multi_agent_mcp.system.git import git

logger = logging.getLogger(__name__)

HOOKS = "multi-agent-mcp-hooks"
MARK = "# Written by multi-agent-mcp"
CLIENT_HOOKS = frozenset(
    (
        *("applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "pre-merge-commit", "commit-msg"),
        *("prepare-commit-msg", "post-commit", "pre-rebase", "post-checkout", "post-merge", "pre-push"),
        *("pre-auto-gc", "post-rewrite", "sendemail-validate"),
    )
)
"""Hooks (githooks(5)) that change nothing by being there and doing nothing. A person may add theirs later."""
_NAME = re.compile(r"[a-z][a-z0-9-]*")
_KEY, _EXTENSION, _OURS = "core.hooksPath", "extensions.worktreeConfig", "multi-agent-mcp.worktreeConfig"
_SCRIPT = r"""#!/bin/sh
{mark}, for this worktree alone and until it is removed: runs the hook that git would run without
# it, and names the task and the agent in the messages of commits.
name=${{0##*/}}
hook=$(git config --type=path --get-all core.hooksPath | grep -vxF -- {here} | tail -n 1)
hook=${{hook:-$(git rev-parse --git-common-dir)/hooks}}/$name
named() {{
  words=$(sed '/^. -\{{24\}} >8 -\{{24\}}$/,$d' "$1" | git stripspace --strip-comments)
  template=$(git config --type=path commit.template) && template=$(git stripspace --strip-comments <"$template")
  case $words in '' | "$template") return ;; esac
  printf '%s\n' "$words" | grep -q '^Task: tsk_' && return
  task=$({task} 2>/dev/null)
  [ -z "$(tail -c 1 "$1")" ] || echo >>"$1" # of a merge; git would take its subject for the block of trailers
  git -c trailer.separators=: interpret-trailers --in-place --no-divider --if-exists addIfDifferent --if-missing add \
    ${{task:+--trailer "Task: $task"}} --trailer {trailer} "$1" || :
}}
runs() {{ [ -x "$hook" ] && [ -f "$hook" ]; }}
case $name in
prepare-commit-msg)
  if runs; then "$hook" "$@" || exit; fi
  [ "$2" = template ] || named "$1"
  exit 0
  ;;
commit-msg) named "$1" ;;
esac
runs || exit 0
exec "$hook" "$@"
"""


def sign_commits(path: str, agent_id: str, task: Sequence[str]) -> None:
    """Has git name in every commit of this worktree the agent, and the task that this command prints. Never raises:
    where git or the worktree do not allow it, commits are made as before."""
    try:
        common = common_directory(path)
        own = own_directory(path, common)
        hooks, settings = own / HOOKS, own / "config.worktree"
        if _value(settings, _KEY) not in ("", str(hooks)) or _is_peculiar(common):
            return
        _write(hooks, _script(hooks, agent_id, task), CLIENT_HOOKS | set(_others(path, hooks)))
        if not _value(settings, _KEY):
            git(path, "config", "--file", str(settings), _KEY, str(hooks))
        shared = Path(common, "config")
        if _value(shared, _EXTENSION) != "true":
            git(path, "config", "--file", str(shared), _OURS, "true")
            git(path, "config", "--file", str(shared), _EXTENSION, "true")
    except (Refusal, OSError) as error:
        logger.warning("commits in %s do not name their task: %s", path, error)


def forget_signing(tree: str) -> None:
    """Takes back what worktrees that are gone have left: their hooks where git has copied the setting into others, and
    the extension, if it is ours and nothing else uses it. Never raises."""
    try:
        common = Path(common_directory(tree))
        settings = [common / "config.worktree", *common.glob("worktrees/*/config.worktree")]
        for one in settings:
            hooks = Path(_value(one, _KEY))
            if hooks.name == HOOKS and not hooks.exists():
                git(tree, "config", "--file", str(one), "--unset-all", _KEY)
        shared = common / "config"
        if _value(shared, _OURS) and not any(one.exists() and one.read_text().strip() for one in settings):
            for key in (_EXTENSION, _OURS):
                git(tree, "config", "--file", str(shared), "--unset-all", key, ok=(0, 5))
    except (Refusal, OSError) as error:
        logger.warning("the hooks of removed worktrees are not forgotten: %s", error)


def _is_peculiar(common: str) -> bool:
    """Whether the repository's configuration has what would have to move with the extension (git-worktree(1))."""
    shared = Path(common, "config")
    return _value(shared, "core.bare") == "true" or bool(_value(shared, "core.worktree"))


def _value(file: Path, key: str) -> str:
    """The value in a file of git's configuration; "" if there is none."""
    return git(file.parent, "config", "--file", str(file), "--get", key, ok=(0, 1)) if file.exists() else ""


def _others(path: str, hooks: Path) -> Iterator[str]:
    """The names of the person's other hooks: being there, some change what git does."""
    found = git(path, "config", "--type=path", "--get-all", _KEY, ok=(0, 1)).splitlines()
    chosen = [one for one in found if one != str(hooks)]
    place = Path(path, chosen[-1]) if chosen else Path(common_directory(path), "hooks")
    with suppress(OSError):
        for one in place.iterdir():
            if _NAME.fullmatch(one.name) and one.is_file() and os.access(one, os.X_OK):
                yield one.name


def _script(hooks: Path, agent_id: str, task: Sequence[str]) -> str:
    trailer = shlex.quote(f"Agent: {agent_id}")
    return _SCRIPT.format(mark=MARK, here=shlex.quote(str(hooks)), trailer=trailer, task=shlex.join(task))


def _write(hooks: Path, script: str, names: set[str] | frozenset[str]) -> None:
    """Writes these hooks, each in one step; others of ours go, and what somebody else has written there stays."""
    if not is_own_directory(hooks):
        hooks.mkdir()
    for name in names | {one.name for one in hooks.iterdir()}:
        file = hooks / name
        known = file.read_text(errors="replace") if file.is_file() else ""
        if known and MARK not in known:
            continue
        if name not in names:
            file.unlink(missing_ok=True)
        elif known != script:
            fresh = hooks / f"{name}.new"
            fresh.unlink(missing_ok=True)
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o755), "w") as written:
                written.write(script)
            fresh.replace(file)
