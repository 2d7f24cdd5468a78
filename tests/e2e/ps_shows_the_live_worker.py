"""`ps` names exactly the live workers, with charge, measured bytes and use, and requests while they run."""

from harness import Daemon, Stream, check, eventually

with Daemon() as daemon:
    check(daemon.json("ps")["models"] == [], "something is resident before anything was asked")
    check(daemon.json("ps")["budget"]["charged_bytes"] == 0, "something is charged before anything was asked")
    stream = Stream(daemon, "slow", "Once", "--raw", "--max-tokens", "400", "--ignore-eos")
    stream.until("delta")
    model = daemon.model("slow")
    check(daemon.workers() == [model["pid"]], daemon.workers(), model)
    with open(f"/proc/{model['pid']}/comm") as name:
        check(name.read() == "bulkhead-worker\n", "ps and top call it something else")
    check(model["state"].lower() == "busy" and model["in_flight"] == 1, model)
    check(model["charge_bytes"] >= model["measured_bytes"] > 0, model)
    requests = daemon.json("ps", "--requests")["requests"]
    check([request["inference_id"] for request in requests] == [stream.inference_id], requests)
    check(requests[0]["allocation_id"] == model["allocation_id"], requests, model)
    check("slow" in daemon.ok("ps").out and "MiB" in daemon.ok("ps").out, daemon.ok("ps").out)
    eventually(lambda: daemon.model("slow")["engine"].get("active_decode", 0) == 1, "a heartbeat of the busy engine")
    engine = daemon.model("slow")["engine"]
    check(engine["healthy"] and engine["kv_pages_total"] > engine["kv_pages_free"] > 0, engine)
    check(engine["max_sequences"] == model["sequences"], engine)
    check(f"{model['allocation_id']}: 1 sequences, pages" in daemon.ok("ps").out, daemon.ok("ps").out)
    check(f"engine {model['allocation_id']}" in daemon.run("doctor").out, daemon.run("doctor").out)
    check(daemon.json("ps")["budget"]["charged_bytes"] >= model["charge_bytes"], daemon.json("ps"))
    daemon.ok("cancel", stream.inference_id)
    stream.finish()
