"""Names that the server and the workers share without importing each other."""

from typing import Final

RUN_JOB = "penstock.run_job"
QUEUE = "penstock"
INGEST: Final = "ingest"
