"""What a process's main thread waits for in the kernel: the file, connection, lock or sleep behind its system call.

A Python stack ends at the line that called into native code; for a read of a file system that does not answer, or a wait
for a key of torch's store, the call's own argument says the rest. Nothing is paused; reading takes the right to trace.
"""

from __future__ import annotations

import os
import platform
import struct

#: system call -> its number by machine, and what it waits for: "fd" its first argument, "poll" the descriptors that its
#: first argument points to, else the word itself.
_CALLS: tuple[tuple[str, int, int, str], ...] = (
    ("read", 0, 63, "fd"), ("pread64", 17, 67, "fd"), ("readv", 19, 65, "fd"), ("write", 1, 64, "fd"),
    ("pwrite64", 18, 68, "fd"), ("writev", 20, 66, "fd"), ("recvfrom", 45, 207, "fd"), ("recvmsg", 47, 212, "fd"),
    ("sendto", 44, 206, "fd"), ("sendmsg", 46, 211, "fd"), ("accept", 43, 202, "fd"), ("accept4", 288, 242, "fd"),
    ("connect", 42, 203, "fd"), ("fsync", 74, 82, "fd"), ("fdatasync", 75, 83, "fd"), ("flock", 73, 32, "fd"),
    ("fcntl", 72, 25, "fd"), ("poll", 7, -1, "poll"), ("ppoll", 271, 73, "poll"),
    ("openat", 257, 56, "opening a file"), ("open", 2, -1, "opening a file"), ("stat", 4, -1, "a file's status"),
    ("newfstatat", 262, 79, "a file's status"), ("statx", 332, 291, "a file's status"),
    ("futex", 202, 98, "a lock"), ("wait4", 61, 260, "a child process"), ("waitid", 247, 95, "a child process"),
    ("nanosleep", 35, 101, "a sleep"), ("clock_nanosleep", 230, 115, "a sleep"), ("ioctl", 16, 29, "a device"),
)  # fmt: skip
_MACHINE = platform.machine()
_BY_NUMBER = {row[1] if _MACHINE == "x86_64" else row[2]: row for row in _CALLS if _MACHINE in ("x86_64", "aarch64")}
#: Connections looked through for the one that a descriptor belongs to.
MOST_CONNECTIONS = 20_000


def blocked(pid: int, store_port: int | None = None) -> str | None:
    """Say it as ``store 10.0.0.1:29500``, ``socket 10.0.0.1:443``, ``file /data/x``, ``a pipe``, ``a lock``, ``a sleep``.

    None while it runs, and where that cannot be seen. ``store_port`` is the port of torch's store. May block as long as
    the kernel does; call it from a thread that can wait.
    """
    try:
        with open(f"/proc/{pid}/syscall", "rb") as file:
            words = file.read(512).split()
        row = _BY_NUMBER.get(int(words[0]))
        argument = int(words[1], 16)
        count = int(words[2], 16)
    except (OSError, ValueError, IndexError):
        return None
    if row is None:
        return None
    if row[3] == "fd":
        return _descriptor(pid, argument & 0xFFFFFFFF, store_port)
    if row[3] == "poll":
        for fd in _polled(pid, argument, count):
            found = _descriptor(pid, fd, store_port)
            if found is not None and (count == 1 or not found.startswith(("pipe", "event"))):
                return found
        return "a poll"
    return row[3]


def _polled(pid: int, address: int, count: int) -> list[int]:
    """The descriptors of a poll call, read from the process's memory: eight bytes each."""
    if not 0 < count <= 16 or not address:
        return []
    try:
        fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        raw = os.pread(fd, 8 * count, address)
    except (OSError, OverflowError, ValueError):
        return []
    finally:
        os.close(fd)
    return [number for number, _, _ in struct.iter_unpack("=ihh", raw[: len(raw) // 8 * 8]) if number >= 0]


def _descriptor(pid: int, fd: int, store_port: int | None) -> str | None:
    try:
        target = os.readlink(f"/proc/{pid}/fd/{fd}")
    except OSError:
        return None
    if target.startswith("socket:["):
        remote = _remote(pid, target[8:-1])
        if remote is None:
            return "a socket"
        kind = "store" if store_port is not None and remote[1] == store_port else "socket"
        return f"{kind} {remote[0]}:{remote[1]}"
    if target.startswith("pipe:"):
        return "a pipe"
    if target.startswith("anon_inode:"):
        return "an event"
    return f"file {target[:300]}"


def _remote(pid: int, inode: str) -> tuple[str, int] | None:
    """The other end of a TCP connection of the process's network namespace."""
    wanted = inode.encode()
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{pid}/net/{name}", "rb") as file:
                next(file, None)
                for _, line in zip(range(MOST_CONNECTIONS), file, strict=False):
                    words = line.split()
                    if len(words) > 9 and words[9] == wanted:
                        address, _, port = words[2].partition(b":")
                        return _address(address.decode()), int(port, 16)
        except (OSError, ValueError):
            continue
    return None


def _address(text: str) -> str:
    """The kernel's hexadecimal address: 32-bit words in the machine's order."""
    raw = b"".join(struct.pack("=I", int(text[at : at + 8], 16)) for at in range(0, len(text), 8))
    if len(raw) == 16 and raw[:12] == b"\0" * 10 + b"\xff\xff":
        raw = raw[12:]
    if len(raw) == 4:
        return ".".join(map(str, raw))
    import ipaddress

    return f"[{ipaddress.IPv6Address(raw)}]"
