"""Gives every test the services of `tests/harness`."""

pytest_plugins = ["harness.fixtures"]
