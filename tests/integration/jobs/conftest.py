"""The fault tests' production parts serve these tests too."""

from fault.conftest import groups, pictures, stage

__all__ = ["groups", "pictures", "stage"]
