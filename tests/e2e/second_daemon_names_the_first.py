"""A second daemon on the same state directory exits with its own code, naming the owner's pid; the first serves on."""

from harness import Daemon, check

with Daemon() as daemon:
    second = Daemon(directory=daemon.directory)
    code = second.process.wait(10)
    second.__exit__(None, None, None)
    check(code not in (0, 1, 2), "exit", code)
    check(str(daemon.pid) in second.log(), second.log())
    daemon.ok("run", "tale", "Once", "--raw", "--max-tokens", "3")
