"""What the driver's failures become."""

import pytest
from cassandra import AuthenticationFailed
from cassandra.cluster import NoHostAvailable

from penstock_server.errors import DependencyUnavailable
from penstock_server.settings import StoreSettings
from penstock_server.store import cql_schema


class RefusingCluster:
    def __init__(self, errors: object) -> None:
        self.errors = errors
        self.is_shut_down = False

    def connect(self) -> None:
        raise NoHostAvailable("Unable to connect to any servers", self.errors)

    def shutdown(self) -> None:
        self.is_shut_down = True


@pytest.mark.parametrize(
    ("errors", "is_login"),
    [
        ({"127.0.0.1": AuthenticationFailed("no")}, True),
        ({"127.0.0.1": OSError("away")}, False),
        # The hosts alone, when it was let in once and then no more.
        (["127.0.0.1"], False),
    ],
)
def test_no_host_is_unavailable_and_says_when_it_is_the_login(
    monkeypatch: pytest.MonkeyPatch, errors: object, is_login: bool
) -> None:
    cluster = RefusingCluster(errors)
    monkeypatch.setattr(cql_schema, "_cluster", lambda settings: cluster)
    with pytest.raises(DependencyUnavailable) as caught, cql_schema.connected(StoreSettings()):
        pass
    assert isinstance(caught.value, cql_schema.LoginRefused) is is_login
    assert cluster.is_shut_down
