import shutil
from collections.abc import Callable

from harness.cassandra.direct import Door
from harness.cassandra.launch import NodeSettings, command, prepare_folder
from harness.errors import HarnessError
from harness.processes import Process
from harness.run import Run


class CassandraNode:
    """One JVM. `kill`, `freeze` and `thaw` act at once; `restart` returns when the cluster is whole again."""

    def __init__(self, run: Run, settings: NodeSettings, *, door: Door, on_restart: Callable[[], None]) -> None:
        self.settings = settings
        self.door = door
        self._run = run
        self._on_restart = on_restart
        self._process: Process | None = None
        self.is_frozen = False

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def address(self) -> str:
        return self.settings.address

    @property
    def process(self) -> Process:
        if self._process is None:
            raise HarnessError(f"{self.name} was never started")
        return self._process

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_running

    @property
    def is_up(self) -> bool:
        return self.is_running and not self.is_frozen

    def start(self) -> None:
        prepare_folder(self.settings)
        self.is_frozen = False
        self._process = self._run.spawn(self.name, command(self.settings), cwd=self.settings.folder)
        if self.settings.gives_way:
            self._process.give_way()

    def kill(self) -> None:
        """SIGKILL: as a machine that lost its power."""
        self.process.kill()
        self.is_frozen = False

    def freeze(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        self.process.freeze()
        self.is_frozen = True

    def thaw(self) -> None:
        self.process.thaw()
        self.is_frozen = False

    def restart(self, *, is_empty: bool = False) -> None:
        """Start it again on its data (or with none), and wait until all nodes that are up see each other as up."""
        self.process.kill()
        if is_empty:
            self.wipe()
        self.start()
        self._on_restart()

    def wipe(self) -> None:
        for folder in (self.settings.folder, self.settings.commit_log):
            shutil.rmtree(folder, ignore_errors=True)

    def check_alive(self) -> None:
        if self._process is not None and not self._process.is_running:
            raise HarnessError(
                f"{self.name} ended with code {self._process.exit_code} while starting\n{self._process.log_tail()}"
            )
