"""What a report of pytest's tells beside its outcome, and what the agent's plugin has written on it for that."""

from __future__ import annotations

from typing import Any

# On each report: what the item has raised so far, in every phase and attempt; whether the test itself was called.
RAISED, CALLED = "nsa_pod_raised", "nsa_pod_called"
# On the last one of a test: which checks ran.
CHECKS = "nsa_pod_checks"
# On an item and its reports, where the node id does not say which test it is: what does.
NAME = "nsa_pod_name"
# On that of a failure: why, as `why` says it.
WHY = "nsa_pod_why"


def details_of(report: Any, when: str, outcome: str) -> dict[str, Any]:
    """What else an outcome needs: reasons, the subtest that it is of, and at the end the routes that were taken."""
    details: dict[str, Any] = {}
    own = vars(report)
    if NAME in own:
        details["node_id"] = report.nodeid
    if own.get(RAISED):
        details["raised"] = own[RAISED]
    if "wasxfail" in own:
        details["xfail"] = str(report.wasxfail)
    elif outcome == "skipped":
        details["reason"] = skip_reason(report)
    elif outcome == "failed":
        details.update(failure(report))
    if "context" in own:
        details["subtest"] = True
    if when == "call":
        if not own.get(CALLED):
            details["called"] = False
    elif when == "teardown":
        routes = [[k, str(v)] for k, v in report.user_properties if k.startswith("route.")]
        if routes:
            details["routes"] = routes
        if own.get(CHECKS):
            details["checks"] = own[CHECKS]
    return details


def skip_reason(report: Any) -> str:
    reason = report.longrepr[2] if isinstance(report.longrepr, (tuple, list)) else str(report.longrepr)
    prefix = "Skipped: "
    return str(reason[len(prefix) :] if reason.startswith(prefix) else reason)


def failure(report: Any) -> dict[str, object]:
    told = getattr(report, WHY, None)
    return {"reason": told["error"][0], "why": told} if told and told["error"] else {"reason": _last_line(report)}


def _last_line(report: Any) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else report.longreprtext.strip().rpartition("\n")[2]
    return str(text).partition("\n")[0][:500]
