"""The contract suite of the core (`penstock-core/tests/store_contract.rs`), on a real Cassandra."""

import os
import subprocess

import pytest

from harness.cassandra.cluster import CassandraCluster
from harness.run import ROOT


@pytest.mark.timeout(1200)  # cargo may have to compile the driver first
def test_cql_holds_to_the_contract_of_stores(cassandra: CassandraCluster) -> None:
    # As `make test-core` builds it: other flags would compile the driver once more.
    profile = ["--locked", "--release", "--config", "test-profile.toml"]
    argv = [f"{ROOT}/scripts/cargo.sh", "test", *profile, "-p", "penstock-core", "--test", "store_contract", "cql"]
    done = subprocess.run(
        argv,
        env=os.environ | {"PENSTOCK_TEST_CQL": cassandra.contact_points[0]},
        capture_output=True,
        text=True,
        check=False,
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert "1 passed" in output
    assert "skipped" not in output
