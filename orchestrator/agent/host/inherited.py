"""What stages and builds take over from the agent's own environment variables: an allow-list."""

from __future__ import annotations

import os
import re

_INHERITED = re.compile(
    r"HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_[A-Z]+|TZ|LD_LIBRARY_PATH|CUDA_VISIBLE_DEVICES|CUDA_HOME|CUDA_PATH|"
    r"NVIDIA_[A-Z_]+|(?:HTTPS?|FTP|ALL|NO)_PROXY|(?:https?|ftp|all|no)_proxy|SSL_CERT_FILE|SSL_CERT_DIR|REQUESTS_CA_BUNDLE"
)


def inherited() -> dict[str, str]:
    """Of the agent's own variables, those that are on the list."""
    return {name: value for name, value in os.environ.items() if _INHERITED.fullmatch(name)}
