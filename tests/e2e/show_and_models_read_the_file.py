"""`models` lists the catalogue; `show` tells what the file's header says, without a worker that stays."""

from harness import SHARED, Daemon, check

with Daemon() as daemon:
    models = {model["model"]: model for model in daemon.json("models")["models"]}
    check(set(models) == {"slow", "tale"}, models)
    check(models["slow"]["file_bytes"] == (SHARED / "slow.gguf").stat().st_size, models["slow"])
    shown = daemon.json("show", "slow")
    check(shown["model"] == "slow" and shown["manifest"]["architecture"] == "qwen3", shown)
    check(shown["manifest"]["layers"] == 8 and shown["manifest"]["quantisation"] == "Q8_0", shown)
    check(daemon.workers() == [], "show left a worker")
