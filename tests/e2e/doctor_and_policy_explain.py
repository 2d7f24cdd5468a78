"""`doctor` reports on the machine; `policy` prints each value with its origin (default, file, conf.d, runtime), and takes an
administrator's change, which lasts until the next reload."""

import signal

from harness import ALICE, AS_ROOT, Daemon, check, eventually

with Daemon('[model]\nsequences = 3\n') as daemon:
    findings = daemon.run("--json", "doctor").reply["findings"]
    check(findings and all(finding["status"] in ("ok", "warn", "fail") for finding in findings), findings)
    said = {finding["what"]: finding["detail"] for finding in findings}
    check("may run at once" in said["cpus"] and "core" in said["cpus"], said)
    check("a leaf per worker" in said["cgroup delegation"] or "RLIMIT_DATA" in said["cgroup delegation"], said)
    check("cpu grant" not in said, "a grant without a worker", said)
    daemon.ok("load", "tale")
    of_worker = [f for f in daemon.run("--json", "doctor").reply["findings"] if f["detail"].startswith("tale#")]
    details = " ".join(finding["detail"] for finding in of_worker)
    check("thread" in details and "idle, holds none" in details, of_worker)
    check("kernels: " in details and "huge pages: " in details, of_worker)
    values = {value["name"]: value for value in daemon.json("policy")["values"]}
    check(values["model.sequences"]["value"] == "3" and "bulkhead.toml" in values["model.sequences"]["origin"], values)
    check(values["budget.profile"]["origin"] == "default", values["budget.profile"])
    before = daemon.json("policy")["generation"]
    if AS_ROOT:
        check(daemon.run("policy", "set", "budget.profile=local_focused", uid=ALICE).code == 8, "alice set the policy")
    after = daemon.json("policy", "set", "budget.profile=local_focused")
    check(after["generation"] > before, after)
    check({value["name"]: value["value"] for value in after["values"]}["budget.profile"] == "local_focused", after)
    check(daemon.run("policy", "set", "no.such=1").code == 2, "an unknown key was taken")

    def value(name):
        return daemon.json("policy", "get", name)["values"][0]
    check(value("budget.profile")["source"] == "runtime", value("budget.profile"))
    check(value("model.sequences")["source"] == "file" and value("queue.total")["source"] == "default", "sources")
    check(daemon.run("policy", "get", "no.such").code == 2, "an unknown value was shown")
    (daemon.directory / "conf.d").mkdir()
    (daemon.directory / "conf.d" / "10-more.toml").write_text("[queue]\ntotal = 300\n[model]\nsequences = 2\n")
    daemon.process.send_signal(signal.SIGHUP)
    eventually(lambda: value("queue.total")["value"] == "300", "the reload")
    check(value("model.sequences")["value"] == "2" and value("model.sequences")["source"] == "conf.d", "conf.d")
    check(value("model.sequences")["origin"].endswith("conf.d/10-more.toml:4"), value("model.sequences"))
    check(value("budget.profile") == {"name": "budget.profile", "value": "everyday", "origin": "default",
                                      "source": "default"}, value("budget.profile"))
