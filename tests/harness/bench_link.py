"""Cassandra behind a link that is as narrow as this machine can bear and as long as a benchmark wants it."""

import time
from collections.abc import Iterator, Sequence
from itertools import takewhile

from harness.bench_cluster import BenchCluster
from harness.bench_dataset import Arrival, BenchDataset, arrivals
from harness.bench_report import BenchReport
from harness.bench_scale import count
from harness.cassandra.cluster import Layout
from harness.relay import Relay
from harness.run import Run
from penstock._native import Engine, Store

FAR_MS = 150
# Of what the machine carries unshaped: above the range two cores are the limit, below it the link is too easy to fill.
# At the lower end, because bytes that lie in the relay for a while cost it more than those that pass through.
_SHARE = 0.53
_SHARE_REACH = "0.5 to 0.7"
_RISES = 1.05
# One look may rise by chance, or not rise by chance: it is compared with the one before the last.
_LEAST_LOOKS = count(4, quick=3)
_MOST_LOOKS = count(10, quick=3)
_WINDOW_BYTES = 4_000_000
# With some hundred threads at work the node keeps a client waiting for up to 80 ms for a core, and with it what the
# link would bring: no node that is 150 ms away can do that.
_BEHIND_A_RELAY = Layout("cassandra-far", 1, has_relays=True, gives_way=True)


class BenchLink:
    """A loaded, warm node; all connections to it share `rate` bytes a second, and each has 4 MB a round trip."""

    def __init__(self, run: Run, dataset: BenchDataset) -> None:
        self.cluster = BenchCluster(run, dataset, layout=_BEHIND_A_RELAY)
        self.dataset = dataset
        self.cluster.warm()
        self._unshaped_before = self._settled_unshaped_rate()
        self.rate = _SHARE * self._unshaped_before

    @property
    def relay(self) -> Relay:
        return self.cluster.cassandra.relays[0]

    def set_round_trip(self, milliseconds: float) -> None:
        self.relay.set(rate=self.rate, window_bytes=_WINDOW_BYTES, delay_ms=milliseconds / 2)

    def open_store(self, **changes: object) -> Store:
        return self.cluster.open_store(**changes)

    def end(self, report: BenchReport) -> None:
        """Adds what the other figures have to be seen against; the link is unshaped from here on.

        The unshaped rate is measured once more: on a machine that has changed meanwhile the link was not what it was
        meant to be, and the table has to say so.
        """
        after = self._unshaped_rate()
        self.cluster.report_warmth(report)
        report.add("link", self.rate / 1e6, unit="MB/s")
        for when, unshaped in (("before", self._unshaped_before), ("after", after)):
            report.add(f"unshaped rate, {when}", unshaped / 1e6, unit="MB/s")
            report.add(f"link / unshaped rate, {when}", self.rate / unshaped, unit="x", reach=_SHARE_REACH)

    def close(self) -> None:
        self.cluster.close()

    def _settled_unshaped_rate(self) -> float:
        """As it is when it does not rise any more: a node whose CPU has settled may still get faster behind a relay."""
        rates: list[float] = []
        while len(rates) < _MOST_LOOKS:
            rates.append(self._unshaped_rate())
            has_settled = len(rates) >= _LEAST_LOOKS and rates[-1] <= _RISES * rates[-3]
            if has_settled:
                break
        return rates[-1]

    def _unshaped_rate(self) -> float:
        self.relay.clear()
        with self.open_store() as store, self.dataset.engine(store) as engine:
            return steady_rate(engine, skip_seconds=1, seconds=count(6, quick=2))


def steady_rate(engine: Engine, *, skip_seconds: float, seconds: float) -> float:
    """Bytes a second that a consumer gets who takes all it can, after the first seconds."""
    seen = list(first_seconds(engine, skip_seconds + seconds))
    started = seen[0].at
    return rate_of([arrival for arrival in seen if arrival.at >= started + skip_seconds])


def first_seconds(engine: Engine, seconds: float) -> Iterator[Arrival]:
    """What arrives in this time from now on."""
    end = time.monotonic() + seconds
    return takewhile(lambda arrival: arrival.at < end, arrivals(engine))


def rate_of(seen: Sequence[Arrival]) -> float:
    """Bytes a second between the first arrival and the last."""
    return sum(arrival.size_bytes for arrival in seen[1:]) / (seen[-1].at - seen[0].at)
