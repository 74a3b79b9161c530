"""The order of runs is that of their launches, and one wrong clock dates no other run."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from orchestrator.plan import plan
from orchestrator.shared.run_ids import STAMP, is_ahead, launched_at, order


def dated(**ahead: int) -> str:
    return f"{(datetime.now(timezone.utc) + timedelta(**ahead)).strftime(STAMP)}-4106f1b-91b056d2"


def test_a_run_of_2099_is_the_newest_of_none_and_dates_none() -> None:
    today, far = dated(), "20991231-235959-4106f1b-91b056d2"
    assert sorted([far, today, dated(days=-1)], key=order)[-1] == today
    assert is_ahead(far) and not is_ahead(today)
    assert plan._moment(far).year == datetime.now(timezone.utc).year
    assert sorted([far, "20981231-235959-4106f1b-91b056d2"], key=order)[-1] == far  # where no other clock tells


def test_a_clock_that_was_put_back_by_a_day_keeps_the_order() -> None:
    tomorrow = dated(days=1)
    assert plan._moment(tomorrow) == launched_at(tomorrow) + timedelta(seconds=1)
    assert sorted([dated(), tomorrow], key=order)[-1] == tomorrow


def test_what_is_no_run_id_has_no_moment() -> None:
    assert launched_at("latest") is None and launched_at("") is None and not is_ahead("99999999-999999-x")
