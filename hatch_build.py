"""The README as a package index shows it: there is no folder around it, so that a relative link leads nowhere.

Where `[project.urls]` names the `Source`, links become absolute, at the tag of this version. Until then their words stay.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE = re.compile(r"\[(?P<words>[^\]]+)\]\((?!https?://|#)(?P<place>[^)\s]+)\)")


class IndexReadme(MetadataHookInterface):
    """Fills in the `readme` that pyproject.toml calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        source = metadata.get("urls", {}).get("Source")
        whole = rf"[\g<words>]({source}/blob/v{metadata['version']}/\g<place>)" if source else r"\g<words>"
        metadata["readme"] = {"content-type": "text/markdown", "text": RELATIVE.sub(whole, text)}
