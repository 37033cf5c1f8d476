class HarnessError(RuntimeError):
    """A service for tests could not be had; the message says which, why and what to do."""
