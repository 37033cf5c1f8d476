"""Build backend of the SDK: maturin, with no path of the building machine in what it compiles.

Rust writes source paths into panic messages. The prefixes that name this checkout, the
home folder and cargo's cache are mapped to neutral ones before maturin starts cargo.
"""

import os
from pathlib import Path
from typing import Any

_SEPARATOR = "\x1f"


def rust_flags(environment: dict[str, str]) -> str:
    """The value of CARGO_ENCODED_RUSTFLAGS: the caller's own flags, then our path mappings."""
    encoded = environment.get("CARGO_ENCODED_RUSTFLAGS")
    flags = encoded.split(_SEPARATOR) if encoded else environment.get("RUSTFLAGS", "").split()
    home = Path.home()
    # rustc takes the last mapping that fits, so the longer prefixes come after the shorter ones.
    mapped = [
        (home, "/home"),
        (Path(environment.get("RUSTUP_HOME", home / ".rustup")), "/rustup"),
        (Path(environment.get("CARGO_HOME", home / ".cargo")), "/cargo"),
        (Path(__file__).resolve().parent, "/penstock"),
    ]
    for prefix, neutral in mapped:
        flag = f"--remap-path-prefix={prefix}={neutral}"
        if flag not in flags:
            flags.append(flag)
    return _SEPARATOR.join(flag for flag in flags if flag)


def __getattr__(hook: str) -> Any:
    """The hooks that stay maturin's own."""
    return getattr(_maturin(), hook)


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, object] | None = None,
    metadata_directory: str | None = None,
) -> str:
    os.environ["CARGO_ENCODED_RUSTFLAGS"] = rust_flags(dict(os.environ))
    return str(_maturin().build_wheel(wheel_directory, config_settings, metadata_directory))


def build_editable(
    wheel_directory: str,
    config_settings: dict[str, object] | None = None,
    metadata_directory: str | None = None,
) -> str:
    os.environ["CARGO_ENCODED_RUSTFLAGS"] = rust_flags(dict(os.environ))
    return str(_maturin().build_editable(wheel_directory, config_settings, metadata_directory))


def _maturin() -> Any:
    # Not at the top: `make` asks for the flags before any package is installed.
    import maturin  # type: ignore[import-untyped]  # it has no stubs

    return maturin


if __name__ == "__main__":
    # `make` and developers ask for the same flags, so that cargo does not build twice.
    print(rust_flags(dict(os.environ)), end="")  # noqa: T201
