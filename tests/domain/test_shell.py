"""Which commands a line for a shell runs, and which files it writes, as far as that can be told."""

from __future__ import annotations

import pytest

from multi_agent_mcp.domain.shell import denied_by, written_by

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
    ],
)
def test_the_files_of_redirections_are_told(line: str, files: list[str]) -> None:
    assert written_by(line) == files
