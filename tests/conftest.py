"""Gives every test the services of `tests/harness`."""

import signal

pytest_plugins = ["harness.fixtures"]

# A run that a shell started in the background ignores Ctrl-C, and so would every process that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
