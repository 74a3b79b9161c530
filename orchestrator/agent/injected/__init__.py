"""What enters a stage's own processes: a package of its own beside the run, `nsa_pod_injected`.

Three enter: `guard` each Python, `pytest_plugin` each session of pytest in one, `shell_recorder.bash` each shell. What
they see, by what and of what, has rooms of its own.

Each Python of a stage loads it at its start, by the stage's environment (a .pth file) or by `sitecustomize` on
PYTHONPATH, and pays for what it imports: so its modules import little, each other only when needed, and nothing of
the orchestrator. Any Python from 3.8 on must be able to.
"""
