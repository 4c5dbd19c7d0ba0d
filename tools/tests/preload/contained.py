"""Runs a program as a container does: `contained.py [--read-only FOLDER] COMMAND…`. System calls that Docker refuses by default
fail with EPERM, and clone3 with ENOSYS. With --read-only (root), nothing can be written but to FOLDER, and /dev/shm has 64 MB."""

import ctypes
import os
import struct
import subprocess
import sys

# Numbers on x86-64. https://docs.docker.com/engine/security/seccomp names the calls.
REFUSED = {
    "acct": 163, "add_key": 248, "bpf": 321, "clock_settime": 227, "delete_module": 176, "fanotify_init": 300, "finit_module": 313,
    "get_mempolicy": 239, "init_module": 175, "io_uring_enter": 426, "io_uring_register": 427, "io_uring_setup": 425, "ioperm": 173,
    "iopl": 172, "kcmp": 312, "kexec_load": 246, "keyctl": 250, "mbind": 237, "memfd_secret": 447, "mount": 165, "move_pages": 279,
    "open_by_handle_at": 304, "perf_event_open": 298, "personality": 135, "pidfd_getfd": 438, "pivot_root": 155,
    "process_vm_readv": 310, "process_vm_writev": 311, "ptrace": 101, "quotactl": 179, "reboot": 169, "request_key": 249,
    "set_mempolicy": 238, "setns": 308, "settimeofday": 164, "swapoff": 168, "swapon": 167, "umount2": 166, "unshare": 272,
    "userfaultfd": 323,
}  # fmt: skip
CLONE3, EPERM, ENOSYS = 435, 1, 38
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LOAD, IF_EQUAL, RETURN, FAIL, ALLOW = 0x20, 0x15, 0x06, 0x00050000, 0x7FFF0000


def refuse():
    steps = [(LOAD, 0, 0, 0)]
    for number, error in [*((number, EPERM) for number in REFUSED.values()), (CLONE3, ENOSYS)]:
        steps += [(IF_EQUAL, 0, 1, number), (RETURN, 0, 0, FAIL | error)]
    steps.append((RETURN, 0, 0, ALLOW))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    for option in (PR_SET_NO_NEW_PRIVS, 1), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER):
        if libc.prctl(*option, program if option[0] == PR_SET_SECCOMP else 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


def make_read_only(folder):
    for mount in (
        ["--make-rprivate", "/"],
        ["--bind", folder, folder],
        ["-o", "remount,ro,bind", "/"],
        ["-t", "tmpfs", "-o", "size=64m", "tmpfs", "/dev/shm"],
    ):
        subprocess.run(["mount", *mount], check=True)
    os.chdir(folder)  # anew, by way of the mount


if __name__ == "__main__":
    command = sys.argv[1:]
    if command[0] == "--read-only":
        make_read_only(command[1])
        command = command[2:]
    refuse()
    os.execvp(command[0], command)
