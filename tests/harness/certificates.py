import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import HarnessError
from harness.programs import find_openssl


@dataclass(frozen=True)
class ServerCertificate:
    ca_file: Path
    keystore: Path
    keystore_password: str

    @property
    def ca_pem(self) -> str:
        return self.ca_file.read_text()


def make_server_certificate(folder: Path, addresses: Sequence[str]) -> ServerCertificate:
    """A CA of its own and a certificate for these addresses: drivers check the node's IP against the SAN."""
    folder.mkdir(parents=True, exist_ok=True)
    password = "penstock-tests"  # protects a key that lives as long as the run
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    subject_names = ",".join(f"IP:{address}" for address in addresses)
    (folder / "server.ext").write_text(
        f"subjectAltName={subject_names}\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n"
    )
    _openssl(
        folder, "req", "-x509", *new_key, "-days", "2", "-subj", "/CN=Penstock tests CA", "-keyout", "ca.key",
        "-out", "ca.pem", "-addext", "keyUsage=critical,keyCertSign,cRLSign",
    )  # fmt: skip
    _openssl(
        folder,
        "req",
        "-new",
        *new_key,
        "-subj",
        "/CN=penstock-cassandra",
        "-keyout",
        "server.key",
        "-out",
        "server.csr",
    )
    _openssl(
        folder, "x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
        "-days", "2", "-extfile", "server.ext", "-out", "server.pem",
    )  # fmt: skip
    _openssl(
        folder, "pkcs12", "-export", "-in", "server.pem", "-inkey", "server.key", "-certfile", "ca.pem",
        "-name", "server", "-passout", f"pass:{password}", "-out", "server.p12",
    )  # fmt: skip
    return ServerCertificate(folder / "ca.pem", folder / "server.p12", password)


def _openssl(folder: Path, *arguments: str) -> None:
    done = subprocess.run([find_openssl(), *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise HarnessError(f"openssl {arguments[0]} failed: {done.stderr.strip()}")
