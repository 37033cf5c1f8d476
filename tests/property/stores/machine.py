"""A state machine that does the same to several stores and to a dict, and compares what comes back."""

import random
from collections.abc import Callable, Iterable

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from penstock._native import Store, xxh3_64

TABLES = ("samples", "objects")
DATASETS = (bytes(range(16)), bytes(range(16, 32)))
NUMBERS = range(12)
FIELDS = ("image", "mask", "text")

tables = st.sampled_from(TABLES)
datasets = st.sampled_from(DATASETS)
groups = st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=8)
field_lists = st.none() | st.lists(st.sampled_from((*FIELDS, "absent")), min_size=1, max_size=3, unique=True)

Found = dict[str, bytes] | None


def id_of(number: int) -> bytes:
    return random.Random(f"id/{number}").randbytes(16)


def fields_of(number: int) -> dict[str, bytes]:
    """Objects never change: their bytes follow from their ids. The first is empty, the last one is cut into chunks."""
    generator = random.Random(number)
    names = sorted(generator.sample(FIELDS, 1 + number % len(FIELDS)))
    most_bytes = 1_300_000 if number == NUMBERS[-1] else number * 900
    return {name: generator.randbytes(generator.randint(most_bytes // 2, most_bytes)) for name in names}


CONTENT = {number: fields_of(number) for number in NUMBERS}


class StoreMachine(RuleBasedStateMachine):
    """Subclasses say which stores. An opener gives an empty store the first time, and then the same one again."""

    def openers(self) -> dict[str, Callable[[], Store]]:
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.reopen_by_name = self.openers()
        self.stores = {name: reopen() for name, reopen in self.reopen_by_name.items()}
        self.model: dict[tuple[str, bytes], set[int]] = {(t, d): set() for t in TABLES for d in DATASETS}

    def teardown(self) -> None:
        for store in self.stores.values():
            store.close()

    def _on_all(self, expected: object, job: Callable[[Store], object]) -> None:
        assert {name: job(store) for name, store in self.stores.items()} == dict.fromkeys(self.stores, expected)

    @rule(table=tables, dataset=datasets, numbers=groups)
    def put(self, table: str, dataset: bytes, numbers: list[int]) -> None:
        objects = [(id_of(number), list(CONTENT[number].items())) for number in numbers]
        for store in self.stores.values():
            store.write(table, dataset, objects)
        self.model[table, dataset].update(numbers)

    @rule(table=tables, dataset=datasets, number=st.sampled_from(NUMBERS), name=st.sampled_from(("", "1st", "a b")))
    def put_what_is_refused(self, table: str, dataset: bytes, number: int, name: str) -> None:
        objects = [(id_of(number), [("image", b"never seen")]), (id_of(0), [(name, b"x")])]

        def is_refused(store: Store) -> bool:
            try:
                store.write(table, dataset, objects)
            except ValueError:
                return True
            return False

        self._on_all(True, is_refused)

    @rule(table=tables, dataset=datasets, numbers=groups, fields=field_lists)
    def get(self, table: str, dataset: bytes, numbers: list[int], fields: list[str] | None) -> None:
        ids = [id_of(number) for number in numbers]
        stored = self.model[table, dataset]
        expected = [self._expected(number, fields) if number in stored else None for number in numbers]
        self._on_all(expected, lambda store: store.read(table, dataset, ids, fields))

    @staticmethod
    def _expected(number: int, fields: Iterable[str] | None) -> Found:
        content = CONTENT[number]
        names = content if fields is None else fields
        return {name: content[name] for name in names} if set(names) <= set(content) else None

    @rule(table=tables, dataset=datasets, numbers=groups)
    def delete(self, table: str, dataset: bytes, numbers: list[int]) -> None:
        for store in self.stores.values():
            store.delete(table, dataset, [id_of(number) for number in numbers])
        self.model[table, dataset].difference_update(numbers)

    @rule(table=tables, dataset=datasets)
    def scan(self, table: str, dataset: bytes) -> None:
        expected = sorted(id_of(number) for number in self.model[table, dataset])
        self._on_all(expected, lambda store: store.scan(table, dataset))

    @rule(table=tables, dataset=datasets, numbers=groups, lies=st.sets(st.integers(0, 30)))
    def verify(self, table: str, dataset: bytes, numbers: list[int], lies: set[int]) -> None:
        """Some of the expectations are wrong, in size or in checksum."""
        claims: list[tuple[bytes, str, int, int]] = []
        truths = []
        for number in numbers:
            for name, data in CONTENT[number].items():
                lie = len(claims) in lies
                size, checksum = len(data) + (lie and number % 2), xxh3_64(data) ^ (lie and 1 - number % 2)
                claims.append((id_of(number), name, size, checksum))
                truths.append(number in self.model[table, dataset] and not lie)
        self._on_all(truths, lambda store: [finding is None for finding in store.verify(table, dataset, claims)])

    @rule(data=st.data())
    def reopen(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.stores)))
        self.stores[name].close()
        self.stores[name] = self.reopen_by_name[name]()
