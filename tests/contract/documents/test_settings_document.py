"""Every setting that the programs read stands in docs/settings.md."""

import re
from collections.abc import Iterator

from pydantic import BaseModel

from harness.run import ROOT
from penstock_server.settings import Settings
from penstock_workers.settings import WorkerSettings


def variables(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from variables(kind, f"{prefix}{name.upper()}__")
        else:
            yield f"{prefix}{name.upper()}"


def test_every_setting_is_documented() -> None:
    documented = set(re.findall(r"`(PENSTOCK_[A-Z_]+)`", (ROOT / "docs" / "settings.md").read_text()))
    known = {*variables(Settings, "PENSTOCK_"), *variables(WorkerSettings, "PENSTOCK_WORKER_")}
    assert known <= documented
    of_the_sdk = {"PENSTOCK_URL", "PENSTOCK_TOKEN", "PENSTOCK_DATASET", "PENSTOCK_RUN", "PENSTOCK_CACHE_FOLDER"}
    assert documented - known == of_the_sdk
