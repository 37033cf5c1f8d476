"""The `penstock` command."""

from penstock._cli._main import main

__all__ = ["main"]
