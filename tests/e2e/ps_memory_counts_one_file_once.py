"""Two models that are one file: `ps --memory` charges its weights once, and what both hold of it adds up to it once."""

import os
import shutil
from harness import SHARED, Daemon, check

MIB = 1 << 20

with Daemon(models=()) as daemon:
    # A file of its own: other tests' workers may map the common one at the same time.
    models = daemon.directory / "models"
    shutil.copyfile(SHARED / "slow.gguf", models / "slow.gguf")
    os.symlink(models / "slow.gguf", models / "again.gguf")
    daemon.ok("load", "slow")
    daemon.ok("load", "again")
    reply = daemon.json("ps", "--memory")
    slow, again = sorted(reply["models"], key=lambda model: model["model"], reverse=True)
    weights = slow["shared_bytes"]
    check(weights == again["shared_bytes"] > 20 * MIB, reply)
    charged = slow["charge_bytes"] + again["charge_bytes"] - weights
    check(reply["budget"]["charged_bytes"] == charged, "charged", reply["budget"], "expected", charged)
    held = slow["share_bytes"] + again["share_bytes"]
    check(weights <= held <= weights + 32 * MIB, "together they hold", held, "of", weights)
    for model in (slow, again):
        check(model["file_bytes"] >= weights, "maps", model["file_bytes"], "of", weights)
        check(0 < model["private_bytes"] <= model["measured_bytes"], model)
        check(model["measured_bytes"] <= model["charge_bytes"] - weights, model)
    check(reply.get("warnings", []) == [], reply)
    table = daemon.ok("ps", "--memory").out
    check("ITS PART" in table and "ESTIMATE" in table, table)
