"""ARCHITECTURE names every file that may be unsafe, and no other may."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
RUST = ROOT / "sdk" / "rust"


def test_architecture_names_every_unsafe_file() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    [paragraph] = [each for each in text.split("\n\n") if each.startswith("`unsafe` stands in")]
    named = set(re.findall(r"`(penstock-\S+\.rs)`", paragraph))
    allowed = {
        str(file.relative_to(RUST)) for file in RUST.rglob("*.rs") if re.search(r"allow\(unsafe_code", file.read_text())
    }
    assert named == allowed
