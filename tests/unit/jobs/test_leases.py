from unit.jobs.lease_cases import LeaseCases


class TestLeasesOnSqlite(LeaseCases):
    """The cases, on the embedded catalog."""
