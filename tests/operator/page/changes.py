"""Messages to a viewer of the page."""

import json
from typing import Any

from numazones_operator.page.versioned_documents import VersionedDocuments


def changes(documents: VersionedDocuments, seen: int = 0) -> dict[str, Any]:
    """Return what a viewer who has seen a version is sent."""
    found: dict[str, Any] = {}
    for chunk in documents.changes_since(seen):
        found |= json.loads(chunk)
    return found
