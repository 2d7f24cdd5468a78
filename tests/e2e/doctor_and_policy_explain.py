"""`doctor` reports on the machine; `policy` prints each value with its origin, and takes an administrator's change."""

from harness import ALICE, AS_ROOT, Daemon, check

with Daemon('[model]\nsequences = 3\n') as daemon:
    findings = daemon.run("--json", "doctor").reply["findings"]
    check(findings and all(finding["status"] in ("ok", "warn", "fail") for finding in findings), findings)
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
