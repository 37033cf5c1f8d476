"""The small dataset of the SDK's unit tests."""

from unit.sdk.conftest import api, private_folders, training

__all__ = ["api", "private_folders", "training"]
