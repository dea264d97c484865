"""Which commands a line for a shell runs, and which files it writes, as far as that can be told."""

from __future__ import annotations

import pytest

from multi_agent_mcp.domain.shell import denied_by
from multi_agent_mcp.domain.shell_files import written_by

DENIED = ("git push", "rm -rf", "curl")


@pytest.mark.parametrize(
    "line",
    [
        "git push",
        "git push origin main",
        "make && git push",
        "git -C sub push",
        "git -c a=b --no-pager push",
        "/usr/bin/git push",
        "A=1 git push",
        "echo $(git push)",
        'echo "done: $(git push)"',
        "bash -c 'git push'",
        "sudo bash -lc 'git push'",
        "eval git push",
        "if true; then git push; fi",
        "env A=1 git push",
        "sudo -u me rm -rf x",
        "find . -name x | xargs rm -rf",
        "find . -exec curl {} \\;",
        "sudo find . -execdir rm -rf {} +",
        "timeout 5 curl http://example.org",
        "curl",
        "true | curl -s x",
        "git \\\npush",
        "`curl x`",
        "bash <<EOF\ncurl x\nEOF",
        ">/dev/null git push",
        "2>&1 git push",
        "git > log push",
        "true ;> log git push",
        "exec 3>&1 git push",
        "coproc git push",
        "coproc X { git push; }",
        "function f { git push; }; f",
        "time -p git push",
        "/usr/bin/time -v git push",
        "stdbuf -o0 git push",
        "flock /tmp/f -c 'git push'",
        "su -c 'git push'",
        "bash -c -- 'git push'",
        "bash <<< 'git push'",
        "cat <<EOF\n$(git push)\nEOF",
        "builtin eval git push",
        "trap 'git push' EXIT",
        "env -S 'git push'",
        "$'git' push",
        "git $'\\x70ush'",
        "{git,push}",
        "git {push,origin}",
        "GIT push",
        "g''it p\\ush",
        "echo `echo \\`git push\\``",
        'echo "`echo \\`git push\\``"',
        "git rebase -x 'git push' main",
        "git rebase -i --exec='git push' main",
        "git bisect run git push",
        "git bisect run sh -c 'git push'",
        "git submodule foreach git push",
        "git submodule foreach --recursive 'git push'",
        "git filter-branch --tree-filter 'git push' HEAD",
        "git difftool -x 'git push'",
        "git ls-remote --upload-pack='git push' .",
        "git -c alias.p='!git push' p",
        "git -c alias.p=push p",
        "git config --global alias.p push",
        "git -c core.editor='git push' commit",
        "git config core.sshCommand 'curl x'",
        "GIT_EDITOR='git push' git commit",
        "BASH_ENV='curl x' bash x",
        "watch 'git push'",
        "parallel 'git push' ::: a",
        "ssh localhost 'git push'",
        "tmux send-keys 'git push' Enter",
        "env -S'git push'",
        "env --split-string='git push'",
        "script -c 'git push' log",
        "uv run git push",
        "docker run x bash -c 'git push'",
        "find . -exec sh -c 'git push' \\;",
        "case x in x) git push;; esac",
        "cat <(git push)",
    ],
)
def test_a_denied_command_is_found_wherever_it_stands(line: str) -> None:
    assert denied_by(line, DENIED) in DENIED


@pytest.mark.parametrize(
    "line",
    [
        "git status",
        "git commit -m 'git push'",
        "echo git push",
        "rm x",
        "rm -r x",
        "grep curl x",
        "cat <<EOF\ngit push\nEOF",
        "cat <<'EOF'\n$(git push)\nEOF",
        "echo '5$' git push 'x'",
        "git log > push",
        "git log push",
        "echo a \\; git push",
        "find . -name '(' curl",
        "echo '{git,push}'",
        "echo {git,push}",
        "git config user.name x",
        "git log --grep 'git push'",
        "git rebase -x 'make test' main",
        "git submodule foreach git status",
        "MSG='git push' true",
        "uv run pytest",
        'echo "a; git push"',
        "",
        "'",
    ],
)
def test_what_only_names_it_is_none(line: str) -> None:
    assert denied_by(line, DENIED) is None


@pytest.mark.parametrize(
    ("line", "files"),
    [
        ("echo a > a.txt", ["a.txt"]),
        ("echo a >> sub/a.txt; cat b", ["sub/a.txt"]),
        ("make >out 2>&1", ["out"]),
        ("make &> out", ["out"]),
        ("echo a | tee -a x y", ["x", "y"]),
        ("echo '> no' > 'a b'", ["a b"]),
        ("ls > /dev/null", []),
        ("cat < in", []),
        ("echo a", []),
        ("echo '>' README.md", []),
        ('echo ">" README.md \\> b', []),
        ("[[ a > b ]] && (( 1 > 2 ))", []),
        ("if [[ a > b ]]; then echo > c; fi", ["c"]),
        ("echo [[ > b ]]", ["b"]),
        ("((echo a) > b; (true))", ["b"]),
        ("echo a >& b 2>&1 3>&-", ["b"]),
        ("bash -c 'echo a > b'", ["b"]),
        ("sh -c '[[ a > b ]]'", ["b"]),
        ("eval 'echo a > b'", ["b"]),
        ('echo "$(echo a > b)"', ["b"]),
        ("echo a | /usr/bin/tee b", ["b"]),
        ("echo a | sudo tee -a b", ["b"]),
        ("coproc tee b", ["b"]),
        ("cat <<EOF\n$(echo > b)\nEOF", ["b"]),
        ("cp a b", ["b"]),
        ("cp a dir", ["dir/a"]),
        ("cp -t dir a b", ["dir/a", "dir/b"]),
        ("cp x{,.bak}", ["x.bak"]),
        ("mv a b", ["a", "b"]),
        ("install -m 644 a b", ["b"]),
        ("ln -sf a b", ["b"]),
        ("rsync -a a b", ["b"]),
        ("rm -rf a b", ["a", "b"]),
        ("truncate -s 0 a", ["a"]),
        ("dd if=a of=b", ["b"]),
        ("sed -i s/a/b/ a b", ["a", "b"]),
        ("sed --in-place=~ -e s/a/b/ a", ["a"]),
        ("sed -n s/a/b/ a", []),
        ("perl -pi -e s/a/b/ a", ["a"]),
        ("curl -so a http://x", ["a"]),
        ("curl -oa http://x", ["a"]),
        ("wget -O a x", ["a"]),
        ("sort -o a b", ["a"]),
        ("find . -name x -delete", ["."]),
        ("find . -fprint a", ["a"]),
        ("find . -exec rm a {} \\;", ["a", "{}"]),
        ("sudo cp a b", ["b"]),
        ("bash -c 'cp a b'", ["b"]),
        ("git rebase -x 'cp a b'", ["b"]),
    ],
)
def test_the_files_that_a_line_changes_are_told(line: str, files: list[str]) -> None:
    assert written_by(line, lambda path: path == "dir") == files


@pytest.mark.parametrize(
    "line",
    [
        "$G push",
        "/usr/bin/gi? push",
        "make push",
        "make -f - <<EOF\nx:; git push\nEOF",
        "sh ./script",
        ". ./script",
        "echo 'git push' | sh",
        "python -c 'import os; os.system(\"git push\")'",
        "awk 'BEGIN { system(\"git push\") }'",
        "alias p='git push'; p",
        "cp /usr/bin/git x; ./x push",
        "git config core.hooksPath hooks; git commit",
        "git send-pack origin",
        "rm -fr x",
        "rm -r -f x",
    ],
)
def test_what_the_documentation_names_as_not_seen_is_not(line: str) -> None:
    assert denied_by(line, DENIED) is None


@pytest.mark.parametrize(
    "line",
    [
        "tar -xf a.tar",
        "unzip a.zip",
        "curl -O http://x/a",
        "patch < a.diff",
        "git apply a.diff",
        "git checkout HEAD~ -- a",
        'python -c \'open("a", "w")\'',
        "awk '{ print > \"a\" }' b",
        "sed 'w a' b",
        "vim -c wq a",
        "make a",
        "cd sub && touch ../../a/../sub/b",
    ],
)
def test_the_files_that_the_documentation_names_as_not_seen_are_not(line: str) -> None:
    assert not {"a", "sub/b"} & {*written_by(line)}


def test_a_line_of_any_length_is_looked_at_in_a_moment() -> None:
    for word in ("git ", "{a,", "sudo tee ", "[[ "):
        line = word * (100_000 // len(word))
        assert denied_by(line, DENIED) is None
        written_by(line)
