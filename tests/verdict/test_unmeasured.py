"""Figures that say that nothing was measured, and such as only look like it."""

from __future__ import annotations

import pytest

from orchestrator.verdict.artifacts.unmeasured import why

TIMES = "S,ms\n512,{}\n1024,{}\n2048,{}\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (TIMES.format(0.0, "0.00", 0), "no time or rate above 0 (ms: 0.0)"),
        (TIMES.format(-1, -1, -1), "no time or rate above 0 (ms: -1)"),
        (TIMES.format(1.25, -1, "2.5"), "holds -1 for a time or a rate (ms)"),
        ('{"ms": 0, "speedup": 0}', "no time or rate above 0 (ms: 0)"),
        ('{"n": 1, "ms": {"512": 0.0}}\n{"n": 2, "ms": {"512": 0.0}}\n', "no time or rate above 0"),
        (TIMES.format(0.51234, 0.51234, 0.51234), "the same times in each row (ms: 0.51234)"),
        ('{"512": {"ms": 0.51234}, "1024": {"ms": 0.51234}, "2048": {"ms": 0.51234}}', "the same times in each row"),
        (
            "S,p50_ms,p99_ms,min_ms\n1,0.51234,0.51234,0.51234\n2,0.61234,0.61234,0.61234\n3,0.71234,0.71234,0.71234\n",
            "the same times in each column (p50_ms: 0.51234",
        ),
        ("S,ms\n512,0.512345678901\n1024,1.024691357802\n2048,2.049382715604\n", "times that are one number times S"),
        (
            '[{"S": 2, "ms": 0.0024691357802}, {"S": 3, "ms": 0.0037037036703}, {"S": 5, "ms": 0.0061728394505}]',
            "times that are one number times S",
        ),
        (
            "S,triton_ms,torch_ms\n2,0.246913,0.3\n3,0.370370,0.4\n5,0.617283,0.6\n",
            "one number times S (triton_ms: 0.246913)",
        ),
        ('{"loss_first": 2.31245, "loss_last": 2.31245, "steps": 9}', "one loss for all steps (loss_first: 2.31245, "),
        (
            '{"train": {"initial_loss": 0.0, "final_loss": 0}}',
            "one loss for all steps (train initial_loss: 0.0",
        ),
        ('{"ms": 1.25, "speedup": 1.0}', "no speedup but 1 (speedup: 1.0)"),
        ("S,ms,speed_up_fwd\n512,0.5,1\n1024,0.6,1.00\n", "no speedup but 1 (speed_up_fwd: 1)"),
    ],
)
def test_figures_that_say_that_nothing_was_measured(content: str, said: str) -> None:
    assert said in str(why(content))


@pytest.mark.parametrize(
    "content",
    [
        TIMES.format(0.0, 0.0, 0.1),
        TIMES.format(0.5, 0.5, 0.5),  # rounded
        TIMES.format(0.5, 1.0, 2.0),
        TIMES.format(0.512345678901, 1.0246913, 2.0493827),
        "S,ms,roofline_ms\n512,0.61,0.512345678901\n1024,0.71,1.024691357802\n2048,0.81,2.049382715604\n",
        "S,ms,us\n512,0.61234,612.34\n1024,0.71234,712.34\n2048,0.81234,812.34\n",
        "S,p50_ms,p99_ms\n512,0.61234,0.61234\n1024,0.71234,0.71234\n2048,0.81234,0.81234\n",
        TIMES.format(0.51234, 0.51234, 0.51235),
        "S,ms\n512,0.51234\n1024,0.51234\n",
        "S,ms,compile_s\n512,0.51,12.3456\n1024,0.61,12.3456\n2048,0.71,12.3456\n",
        "S,ms,baseline_ms\n512,0.51,0\n1024,0.61,0\n2048,0.71,0\n",
        "S,ms,speedup\n512,0.5,1.0\n1024,0.6,1.5\n",
        "S,T\n512,3\n1024,3\n2048,3\n",
        "S,ms,other_ms\n2,0.24691,0.3\n3,0.37037,0.4\n5,0.61728,0.6\n",  # to fewer digits
        "S,ms\n2,0.246913\n3,0.370372\n5,0.617283\n",
        '{"max_err": 0.0, "n": 4}',
        '{"loss_first": 2.5, "loss_last": 2.25}',
        '{"loss_last": 0.0}',
        '{"train_loss": 0.5, "eval_loss": 0.5}',
        '{"ms": 1e999}',
        "nothing\n",
        "",
    ],
)
def test_figures_that_may_be(content: str) -> None:
    assert why(content) is None
