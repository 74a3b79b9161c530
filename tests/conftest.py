"""Fixtures that all of the tool's tests share."""

pytest_plugins = ["tests.support.fixtures", "tests.support.kinds"]
