"""What the stages of one commit stand on: its tree and its environment, checked, and what the agent puts into both."""

from __future__ import annotations

import contextlib
import os
from typing import Iterator, List

from orchestrator.agent.env.interpreter import Installed, Interpreter
from orchestrator.agent.evidence.pointers import Pointers
from orchestrator.agent.evidence.provenance import Origins
from orchestrator.agent.evidence.unread_variables import Variables
from orchestrator.agent.evidence.workspace import Workspace
from orchestrator.agent.layout import Layout, cache_key
from orchestrator.agent.run.bytecode import Bytecode
from orchestrator.agent.run.command import Commands
from orchestrator.agent.run.injection import Injection
from orchestrator.agent.run.secret_values import Secrets
from orchestrator.shared import tree
from orchestrator.shared.plan import Plan


class Ground:
    """Of the commit of `plan`; `manifest` is its tree, `fingerprint` the environment's as recorded."""

    def __init__(
        self,
        plan: Plan,
        places: Layout,
        interpreter: Interpreter,
        manifest: tree.Manifest,
        fingerprint: str,
        secrets: Secrets,
    ) -> None:
        self.places = places
        self.interpreter = interpreter
        self.manifest = manifest
        self.installed = Installed(interpreter, fingerprint)
        self.workspace = Workspace(plan, places, manifest)
        self.pointers = Pointers(places.tree, places.pristine(plan["tree"]), manifest)
        cache = places.cache(cache_key(plan["tree"], fingerprint))
        self.bytecode = Bytecode(interpreter, places)
        self.injection = Injection(places, interpreter, self.bytecode)
        self.origins = Origins(places, interpreter, manifest, cache, tree.without_files(plan["submodules"]))
        self.commands = Commands(
            plan["commit"], places, interpreter, self.injection.venv, secrets, cache, self.bytecode
        )
        self.variables = Variables(places.pristine(plan["tree"]), manifest, _installed(interpreter))
        self.strays: List[str] = []


def _installed(interpreter: Interpreter) -> Iterator[str]:
    """The top-level names of what is installed."""
    for site in interpreter.sites:
        with contextlib.suppress(OSError):
            yield from (name.partition(".")[0] for name in os.listdir(site))
