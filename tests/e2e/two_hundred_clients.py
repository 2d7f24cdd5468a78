"""200 concurrent clients all finish with the text the engine gives when it runs alone."""

import subprocess
from harness import Daemon, check, in_process

with Daemon("[queue]\nper_model = 250\n") as daemon:
    want = {n: in_process("tale", f"Once {n}", "8", "0.8", str(n))["text"] for n in range(8)}
    clients = []
    for n in range(200):
        clients.append((n, daemon.start("run", "tale", f"Once {n % 8}", "--raw", "--max-tokens", "8", "--temperature",
                                        "0.8", "--seed", str(n % 8), "--no-stream")))
    for n, client in clients:
        out, err = client.communicate(timeout=120)
        check(client.returncode == 0, "client", n, client.returncode, err)
        check(out.decode().rstrip("\n") == want[n % 8].rstrip("\n"), "client", n, "got", out, "not", want[n % 8])
    check(len(daemon.workers()) == 1, "more than one worker for one model")
