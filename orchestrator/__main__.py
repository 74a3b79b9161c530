"""`python -m orchestrator` is `nsa-pod`."""

from orchestrator.cli import main

main()
