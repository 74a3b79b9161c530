"""What a notebook says of itself."""

from __future__ import annotations

import json


def cells_of_python(text: str) -> int:
    """How many cells of code it holds, if these are Python's; 0 of what is no notebook."""
    try:
        notebook = json.loads(text)
        about, cells = notebook.get("metadata", {}), notebook["cells"]
        language = about.get("language_info", {}).get("name") or about.get("kernelspec", {}).get("language")
        code = [cell for cell in cells if cell["cell_type"] == "code" and cell["source"]]
        return len(code) if language == "python" else 0
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return 0
