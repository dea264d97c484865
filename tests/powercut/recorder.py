"""`python -m tests.powercut.recorder IMAGE MOUNT LOG SOCKET`: a disk that writes down what it is told, in order.

It is one file, `disk`, in a file system of its own (fuse(4)); a loop device below ext4 turns the kernel's writes into
WRITE and its cache flushes into FSYNC requests. So the log holds exactly what a drive is told and promises: what was
written before a flush is on the platter, what was written since may be there or not. What the load has been
acknowledged comes through a socket into the same log, after the flushes it rests on.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import socket
import stat
import struct
import sys
from pathlib import Path
from typing import NamedTuple

NAME = b"disk"
ROOT, DISK = 1, 2
REQUEST = struct.Struct("<IIQQIIIHH")
REPLY = struct.Struct("<IiQ")
ATTRIBUTES = struct.Struct("<6Q10I")
MAX_WRITE = 128 * 1024
DIRECT_IO = 1  # FOPEN_DIRECT_IO: every request comes through, none is answered by the page cache

# The operations of linux/fuse.h that are asked for here.
LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE, STATFS, RELEASE = 1, 2, 3, 4, 14, 15, 16, 17, 18
FSYNC, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR = 20, 25, 26, 27, 28, 29
ACCESS, INTERRUPT, DESTROY, BATCH_FORGET = 34, 36, 38, 42
UNANSWERED = frozenset({FORGET, INTERRUPT, BATCH_FORGET})
ANSWERED_EMPTY = {STATFS: 80, RELEASE: 0, RELEASEDIR: 0, FLUSH: 0, ACCESS: 0, READDIR: 0, DESTROY: 0}
"""Requests that are answered with so many zero bytes."""
WRITE_HEADER = 40
RECORD = struct.Struct("<BQI")
WRITTEN, FLUSHED, ACKNOWLEDGED = 1, 2, 3


class Record(NamedTuple):
    """One recorded event: data written at an offset, a flush, or an answer to a host."""

    kind: int
    offset: int = 0
    data: bytes = b""


class Refused(Exception):
    """The request is answered with this error number."""


class Disk:
    """Answers the kernel's requests from memory and records them."""

    def __init__(self, image: bytes, log: Path) -> None:
        self.content = bytearray(image)
        self._log = log.open("wb", buffering=1 << 20)

    def record(self, record: Record) -> None:
        self._log.write(RECORD.pack(record.kind, record.offset, len(record.data)) + record.data)

    def close(self) -> None:
        self._log.close()

    def answer(self, opcode: int, node: int, body: bytes) -> bytes:
        """The body of the reply; raises `Refused`."""
        if opcode == INIT:
            return struct.pack("<4I2H2I2HI28x", 7, 31, MAX_WRITE, 0, 16, 12, MAX_WRITE, 1, 0, 0, 0)
        if opcode == LOOKUP:
            if body.rstrip(b"\0") != NAME:
                raise Refused(errno.ENOENT)
            return struct.pack("<4Q2I", DISK, 0, 3600, 3600, 0, 0) + self._attributes(DISK)
        if opcode in (GETATTR, SETATTR):
            return struct.pack("<QII", 3600, 0, 0) + self._attributes(node)
        if opcode in (OPEN, OPENDIR):
            return struct.pack("<QII", 0, DIRECT_IO, 0)
        if opcode in (READ, WRITE, FSYNC):
            return self._input_or_output(opcode, body)
        if opcode in ANSWERED_EMPTY:
            return bytes(ANSWERED_EMPTY[opcode])
        raise Refused(errno.ENOSYS)

    def _input_or_output(self, opcode: int, body: bytes) -> bytes:
        if opcode == FSYNC:
            self.record(Record(FLUSHED))
            return b""
        _, offset, size = struct.unpack_from("<QQI", body)
        if opcode == READ:
            return bytes(self.content[offset : offset + size])
        data = body[WRITE_HEADER : WRITE_HEADER + size]
        self.content[offset : offset + size] = data
        self.record(Record(WRITTEN, offset, data))
        return struct.pack("<II", size, 0)

    def _attributes(self, node: int) -> bytes:
        mode = stat.S_IFDIR | 0o700 if node == ROOT else stat.S_IFREG | 0o600
        size = 0 if node == ROOT else len(self.content)
        return ATTRIBUTES.pack(node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def mounted(place: Path) -> int:
    """Mounts the file system; returns the descriptor its requests come through."""
    descriptor = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={descriptor},rootmode=40000,user_id=0,group_id=0"
    if libc.mount(b"powercut", os.fsencode(place), b"fuse", 0, options.encode()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(place))
    return descriptor


def serve(disk: Disk, requests: int, acknowledgements: socket.socket) -> None:
    """Answers requests until the file system is unmounted."""
    while True:
        ready, _, _ = select.select([requests, acknowledgements.fileno()], [], [])
        if acknowledgements.fileno() in ready:
            disk.record(Record(ACKNOWLEDGED, 0, acknowledgements.recv(1 << 20)))
        if requests not in ready:
            continue
        try:
            request = os.read(requests, MAX_WRITE + 4096)
        except OSError as error:
            if error.errno == errno.ENODEV:
                return
            if error.errno in (errno.EINTR, errno.ENOENT):
                continue  # withdrawn
            raise
        _, opcode, unique, node, *_ = REQUEST.unpack_from(request)
        if opcode in UNANSWERED:
            continue
        try:
            body, number = disk.answer(opcode, node, request[REQUEST.size :]), 0
        except Refused as refused:
            body, number = b"", refused.args[0]
        os.write(requests, REPLY.pack(REPLY.size + len(body), -number, unique) + body)


def main(image: Path, place: Path, log: Path, address: Path) -> None:
    disk = Disk(image.read_bytes(), log)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as acknowledgements:
        acknowledgements.bind(str(address))
        requests = mounted(place)
        sys.stdout.write("mounted\n")
        sys.stdout.flush()
        serve(disk, requests, acknowledgements)
    disk.close()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
