"""ARCHITECTURE names every file that is unsafe, and no other is."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
RUST = ROOT / "sdk" / "rust"
# Not `allow(unsafe_code)`: it holds for the modules below a file too.
UNSAFE = re.compile(r"^(?!\s*//).*\bunsafe\s*(\{|impl\b|fn\b|extern\b|trait\b)", re.MULTILINE)


def test_architecture_names_every_unsafe_file() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    [paragraph] = [each for each in text.split("\n\n") if each.startswith("`unsafe` stands in")]
    named = re.findall(r"`(penstock-\S+\.rs)`", paragraph)
    unsafe = [str(file.relative_to(RUST)) for file in RUST.rglob("*.rs") if UNSAFE.search(file.read_text())]
    assert sorted(named) == sorted(unsafe)
