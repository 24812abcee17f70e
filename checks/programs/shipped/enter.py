"""Becomes a container: runs a command as a kubelet would, within the constraints of a pod's manifest.

    python enter.py SPEC.json

A script of its own that imports nothing of the project: it is started in a network namespace, as root, and
leaves everything behind before the command begins. SPEC: root (a folder), binds (source, target, writable),
user, group, environment, command.
"""

import ctypes
import json
import os
import sys
from pathlib import Path

MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 0x1, 0x20, 0x1000, 0x4000, 0x40000
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_SET_PDEATHSIG = 24, 38, 1
SIGKILL, LAST_CAPABILITY = 9, 63

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: Path, target: Path, flags: int) -> None:
    check(libc.mount(os.fsencode(source), os.fsencode(target), b"none", flags, None), f"mount {target}")


def bind(source: Path, target: Path, *, writable: bool) -> None:
    mount(source, target, MS_BIND | MS_REC)
    if not writable:
        mount(source, target, MS_BIND | MS_REMOUNT | MS_RDONLY)


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text())
    root = Path(spec["root"])
    check(libc.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0), "die with the test")
    check(libc.unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC), "unshare")
    mount(Path("none"), Path("/"), MS_REC | MS_PRIVATE)
    bind(root, root, writable=False)
    for source, target, writable in spec["binds"]:
        bind(Path(source), root / target.lstrip("/"), writable=writable)
    os.chroot(root)
    os.chdir("/")
    for capability in range(LAST_CAPABILITY + 1):
        if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break  # the kernel knows no more
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
    os.setgroups([])
    os.setgid(spec["group"])
    os.setuid(spec["user"])
    # A change of user forgets it.
    check(libc.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0), "die with the test")
    command = spec["command"]
    os.execvpe(command[0], command, spec["environment"])  # noqa: S606 - a command, not a line for a shell


if __name__ == "__main__":
    main()
