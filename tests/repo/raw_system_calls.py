#!/usr/bin/python3
"""No raw system call stands outside base/sys.h: every call that a fault should be able to hit goes through a wrapper."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

CALLS = ("open openat close read pread write fstat stat lstat fsync ftruncate fcntl rename unlink mkdir rmdir getxattr chmod chown flock pipe "
         "pipe2 poll ppoll memfd_create eventfd mmap munmap madvise socket socketpair bind listen accept accept4 connect "
         "shutdown send sendto sendmsg recv recvfrom recvmsg getsockopt setsockopt pidfd_open pidfd_send_signal waitid "
         "waitpid wait4 kill killpg tgkill prlimit setrlimit getrlimit prctl sched_setaffinity sched_getaffinity "
         "setpriority getpid getppid getuid geteuid getgid getegid gettid syscall getrandom clock_gettime fork vfork "
         "execve execv execl execvp posix_spawn nanosleep usleep mlock").split()
# A call by the global scope (::read), or a plain one that is not a member, a declaration or of another namespace.
CALL = re.compile(r"(?<![\w.>:])(?:::)(" + "|".join(CALLS) + r")\s*\(|(?<![\w.>:~])(" + "|".join(CALLS) + r")\s*\(")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:[^\"\\\n]|\\.)*\"", re.S)
EXEMPT = {"base/sys.h", "base/sys.cc"}
FOLDERS = "base ipc admission supervisor daemon kernels engine worker client".split()


def main():
    files = subprocess.run(["git", "ls-files", "*.h", "*.cc"], cwd=ROOT, capture_output=True, text=True,
                           check=True).stdout.split()
    files = [f for f in files if f.split("/")[0] in FOLDERS and f not in EXEMPT]
    wrong = []
    for name in files:
        text = COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), (ROOT / name).read_text())
        for number, line in enumerate(text.splitlines(), 1):
            if line.lstrip().startswith("#"):
                continue
            for match in CALL.finditer(line):
                plain = match.group(2)
                # "int read(...)" declares, "read(x)" calls.
                if plain and re.search(r"[\w>&*]\s+$", line[: match.start()]) and not re.search(
                        r"\b(return|else|case|co_return)\s+$", line[: match.start()]):
                    continue
                # "open()" is a member of ours: only these calls take no argument.
                called = match.group(1) or plain
                bare = line[match.end():].lstrip().startswith(")")
                if bare and not called.startswith("get") and called not in ("fork", "vfork"):
                    continue
                wrong.append(f"{name}:{number}: raw call of {match.group(1) or plain}: {line.strip()}")
    print(f"{len(files)} files read")
    print("\n".join(wrong))
    return 1 if wrong or not files else 0


if __name__ == "__main__":
    sys.exit(main())
