"""Puts the migrations and the built page into the server's wheel; an editable install finds both in the checkout."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class IncludeResources(BuildHookInterface):  # type: ignore[type-arg]  # the plugin's config type is hatchling's own
    """A wheel made from a clone without `frontend/dist` still installs; the server then says how to get the page."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        included = build_data["force_include"]
        included[str(Path(self.root) / "migrations")] = "penstock_server/_migrations"
        page = Path(self.root) / "frontend" / "dist"
        if (page / "index.html").is_file():
            included[str(page)] = "penstock_server/_page"
