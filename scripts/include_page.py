"""Puts the built page into the server's wheel, when it has been built."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class IncludePage(BuildHookInterface):  # type: ignore[type-arg]  # the plugin's config type is hatchling's own
    """A wheel made from a clone without `frontend/dist` still installs; the server then says how to get the page."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        page = Path(self.root) / "frontend" / "dist"
        if version != "editable" and (page / "index.html").is_file():
            build_data["force_include"][str(page)] = "penstock_server/_page"
