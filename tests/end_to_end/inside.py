"""Starts programs inside a pane, as children of its first process, for a caller outside.

In the pane `python inside.py SOCKET` starts what it is asked to. Outside, `python inside.py SOCKET COMMAND …` has a
command started with its own standard streams, directory and environment, and ends as that does; if it is killed first,
the command is ended, too."""

from __future__ import annotations

import array
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

AT_MOST = 1 << 20


def serve(path: str) -> None:
    """Starts commands until the pane's first process has ended."""
    parent = os.getppid()
    os.setpgid(0, 0)  # the pane's foreground is its program alone
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(path)
        server.listen()
        ended = os.pidfd_open(parent)
        while ended not in select.select([server.fileno(), ended], [], [])[0]:
            asked, _ = server.accept()
            if os.fork() == 0:
                server.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                start(asked)
                os._exit(0)
            asked.close()


def start(asked: socket.socket) -> None:
    """Starts one command, and says how it ended."""
    numbers = array.array("i")
    said, passed, *_ = asked.recvmsg(AT_MOST, socket.CMSG_LEN(3 * numbers.itemsize))
    numbers.frombytes(passed[0][2])
    told = json.loads(said)
    into, out, err = numbers
    with subprocess.Popen(
        told["command"], cwd=told["cwd"], env=told["env"], stdin=into, stdout=out, stderr=err
    ) as process:
        for number in numbers:
            os.close(number)
        if (
            asked.fileno() in select.select([asked.fileno(), os.pidfd_open(process.pid)], [], [])[0]
        ):  # its caller is dead
            process.terminate()
    with contextlib.suppress(OSError):
        asked.send(str(process.returncode).encode())


def ask(path: str, command: list[str]) -> int:
    """Has a command started; returns its exit code."""
    told = json.dumps({"command": command, "cwd": str(Path.cwd()), "env": dict(os.environ)})
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asked:
        asked.connect(path)
        asked.sendmsg([told.encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
        for number in (0, 1):
            os.close(number)
        return int(asked.recv(64) or 1)


if __name__ == "__main__":
    if sys.argv[2:]:
        sys.exit(ask(sys.argv[1], sys.argv[2:]))
    serve(sys.argv[1])
