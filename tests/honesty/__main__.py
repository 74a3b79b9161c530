"""Print docs/honesty.md."""

from tests.honesty.catalogue import table

print(table(), end="")
