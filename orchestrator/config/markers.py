"""Whether a requirement is one on a pod, which is Linux with CPython."""

from __future__ import annotations

from packaging.requirements import Requirement

_LINUX = {
    "os_name": "posix",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "platform_python_implementation": "CPython",
    "implementation_name": "cpython",
    "platform_machine": "x86_64",  # the usual one
}
_USUAL_PYTHON = "3.12"


def applies(requirement: Requirement, python: str = "", extra: str = "") -> bool:
    """Whether its marker holds for this Python ("3.12.4"), where that is not known for a usual one."""
    version = python or _USUAL_PYTHON
    own = {
        "python_version": ".".join(version.split(".")[:2]),
        "python_full_version": version,
        "implementation_version": version,
        "extra": extra,
    }
    return requirement.marker is None or requirement.marker.evaluate({**_LINUX, **own})
