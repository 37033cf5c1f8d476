"""The command line and the yaml of one Cassandra node, tuned for short lives on a small machine."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.cassandra.distribution import cassandra_jars
from harness.certificates import ServerCertificate
from harness.programs import find_java

_EXPORTS = [
    "java.base/jdk.internal.misc",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.management/com.sun.jmx.remote.security",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "java.base/java.lang.ref",
    "jdk.unsupported/sun.misc",
]
_OPENS = [
    "java.base/java.lang.module",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "java.base/java.io",
    "java.base/java.lang.reflect",
    "java.base/java.lang",
    "java.base/java.util",
    "java.base/java.nio",
    "jdk.management/com.sun.management.internal",
]
COMMIT_LOG_MIB = 256
_FOLDERS = {
    "saved_caches_directory": "saved_caches",
    "hints_directory": "hints",
    "cdc_raw_directory": "cdc_raw",
}


@dataclass(frozen=True)
class NodeSettings:
    """All that makes one node different from another."""

    name: str
    folder: Path
    commit_log: Path
    address: str
    announced_address: str
    native_port: int
    storage_port: int
    seeds: Sequence[str]
    cluster_name: str
    initial_token: int | None = None
    heap_mib: int = 512
    has_full_jit: bool = False
    gives_way: bool = False
    has_password: bool = False
    certificate: ServerCertificate | None = None


def prepare_folder(settings: NodeSettings) -> None:
    settings.commit_log.mkdir(exist_ok=True)
    for name in (*_FOLDERS.values(), "data", "triggers"):
        (settings.folder / name).mkdir(parents=True, exist_ok=True)
    # The yaml is written as JSON, which is YAML too.
    (settings.folder / "cassandra.yaml").write_text(json.dumps(_yaml(settings), indent=2))
    shutil.copy(Path(__file__).with_name("logback.xml"), settings.folder / "logback.xml")


def command(settings: NodeSettings) -> list[str]:
    jars = cassandra_jars()
    folder = settings.folder
    jamm = next(jars.glob("jamm-*.jar"))
    properties = {
        "cassandra.config": f"file://{folder}/cassandra.yaml",
        "cassandra.storagedir": folder,
        "cassandra.triggers_dir": folder / "triggers",
        "cassandra.logdir": folder,
        "logback.configurationFile": folder / "logback.xml",
        "cassandra-foreground": "yes",
        "cassandra.ring_delay_ms": 100,
        "cassandra.skip_wait_for_gossip_to_settle": 0,
        "cassandra.superuser_setup_delay_ms": 0,
        "cassandra.libjemalloc": "-",
        "jdk.attach.allowAttachSelf": "true",
        "io.netty.tryReflectionSetAccessible": "true",
        "java.net.preferIPv4Stack": "true",
        "java.io.tmpdir": folder / "triggers",
    }
    return [
        str(find_java()),
        f"-javaagent:{jamm}",
        f"-Xms{settings.heap_mib}m",
        f"-Xmx{settings.heap_mib}m",
        "-Xss512k",
        "-XX:+UseSerialGC",
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:MaxDirectMemorySize=512m",
        "-XX:-UsePerfData",
        # Only the first compiler: it halves the start. The second one pays after 100 k reads, so benches want it.
        *([] if settings.has_full_jit else ["-XX:TieredStopAtLevel=1"]),
        *(f"--add-exports={name}=ALL-UNNAMED" for name in _EXPORTS),
        *(f"--add-opens={name}=ALL-UNNAMED" for name in _OPENS),
        *(f"-D{name}={value}" for name, value in properties.items()),
        "-cp",
        f"{folder}:{jars}/*",
        "org.apache.cassandra.service.CassandraDaemon",
    ]


def _yaml(settings: NodeSettings) -> dict[str, object]:
    seeds = ",".join(f"{seed}:{settings.storage_port}" for seed in settings.seeds)
    provider = "org.apache.cassandra.locator.SimpleSeedProvider"
    values: dict[str, object] = {
        "cluster_name": settings.cluster_name,
        "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
        "endpoint_snitch": "SimpleSnitch",
        "seed_provider": [{"class_name": provider, "parameters": [{"seeds": seeds}]}],
        "listen_address": settings.address,
        "storage_port": settings.storage_port,
        "rpc_address": settings.address,
        "broadcast_rpc_address": settings.announced_address,
        "native_transport_port": settings.native_port,
        "auto_bootstrap": False,
        "num_tokens": 1,
        # A killed node must have what it acknowledged: with periodic sync it forgets the last ten seconds, and a test
        # that kills nodes in turn loses all replicas of a row.
        "commitlog_sync": "batch",
        "commitlog_directory": str(settings.commit_log),
        "commitlog_disk_access_mode": "mmap",
        "commitlog_segment_size": "16MiB",
        "commitlog_total_space": f"{COMMIT_LOG_MIB}MiB",
        "memtable_heap_space": "128MiB",
        "memtable_offheap_space": "128MiB",
        "memtable_allocation_type": "offheap_buffers",
        "file_cache_size": "64MiB",
        "key_cache_size": "8MiB",
        "concurrent_reads": 16,
        "concurrent_writes": 16,
        "concurrent_compactors": 1,
        "auto_snapshot": False,
        # What a node missed while it was down stays missing there, so that tests can read from such a replica.
        "hinted_handoff_enabled": False,
        # A busy 2-core machine pauses a node for seconds; that is not a dead node.
        "phi_convict_threshold": 12,
        "write_request_timeout": "4000ms",
        "data_file_directories": [str(settings.folder / "data")],
        **{key: str(settings.folder / name) for key, name in _FOLDERS.items()},
    }
    if settings.initial_token is not None:
        values["initial_token"] = str(settings.initial_token)
    if settings.has_password:
        values["authenticator"] = "PasswordAuthenticator"
        values["authorizer"] = "CassandraAuthorizer"
    if settings.certificate is not None:
        values["client_encryption_options"] = {
            "enabled": True,
            "optional": False,
            "keystore": str(settings.certificate.keystore),
            "keystore_password": settings.certificate.keystore_password,
            "store_type": "PKCS12",
        }
    return values
