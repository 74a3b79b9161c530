"""Routes: the backend that was asked for did not run, or not on the device that is claimed."""

from __future__ import annotations

from tests.honesty.case import Case, lie, truth
from tests.support.stage_cases import ONE_SKIPPED, routed, tests
from tests.support.stage_cases import Case as StageCase

CONFTEST = """
    import pytest
    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(item, call):
        report = (yield).get_result()
        report.user_properties.append(("route.selected", "triton@cpu:interpreted"))
"""
FAILS_ROUTED = """
    def test_kernel(record_property):
        record_property("route.selected", "triton@cpu:interpreted")
        assert 0
    def test_other(): pass
"""


def owing(made: StageCase) -> StageCase:
    """The same stage, owing the route triton for `selected`."""
    made.stage["expect"]["routes"] = {"selected": "triton"}
    return made


HONEST = [
    truth(
        routed("route_taken", "passed", "", "triton@cpu:interpreted"), "the kernel ran, in the interpreter, and says so"
    ),
    truth(routed("all_routes_taken", "passed", "", *["triton@cpu:interpreted"] * 4), "four of four ran it"),
]

LIES = [
    lie(
        routed("never_ran", "invalid", "no passed test recorded route.selected"),
        "the tests pass, no kernel ever ran",
        honest="route_taken",
    ),
    lie(
        routed("fell_back", "invalid", "route.selected was sdpa@cpu, expected triton", "sdpa@cpu"),
        "the row is too short for the kernel: SDPA is compared with SDPA",
        honest="route_taken",
    ),
    lie(
        routed("one_of_four", "invalid", "was sdpa@cpu, expected triton", *["triton@cpu:interpreted"] * 3, "sdpa@cpu"),
        "one of four tests fell back",
        honest="all_routes_taken",
    ),
    lie(
        routed("wrong_case", "invalid", "was Triton@cpu, expected triton", "Triton@cpu"),
        "nearly the right name",
        honest="route_taken",
    ),
    lie(
        routed("gpu_claimed", "invalid", "triton@cuda:sm_90, but the pod has no CUDA GPU", "triton@cuda:sm_90"),
        "reports a GPU where none is",
        honest="route_taken",
    ),
    lie(
        routed(
            "interpreter_as_cuda",
            "invalid",
            "triton@cuda:interpreted, but the pod has no CUDA GPU",
            "triton@cuda:interpreted",
        ),
        "the interpreter's kernels are claimed as CUDA",
        honest="route_taken",
    ),
    lie(
        routed("device_unknown", "invalid", "expected backend@device", "triton"),
        "a route without a device",
        honest="route_taken",
    ),
    lie(
        owing(
            tests(
                "forged_for_a_skip",
                "invalid",
                "no passed test recorded",
                ONE_SKIPPED,
                tests={"allow_skips": ["GPU"]},
                conftest=CONFTEST.replace("report.user", "if report.skipped: report.user"),
            )
        ),
        "the route is recorded for the test that did not run",
        honest="route_taken",
    ),
    lie(
        owing(tests("routed_then_failed", "failed", "test_kernel failed", FAILS_ROUTED)),
        "the one test that took the route fails",
        honest="route_taken",
    ),
]

CASES: list[Case] = [*HONEST, *LIES]
