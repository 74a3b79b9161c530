"""Programs that look at a machine and at what runs there: `python -m nsa.NAME`."""
