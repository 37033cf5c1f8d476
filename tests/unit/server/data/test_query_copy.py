"""The query copy: orders, cursors both ways, jumps, facets, rebuild; checked against plain Python."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.server.data.builders import (
    Parts,
    actor_of,
    create_dataset,
    embedded_settings,
    items,
    open_parts,
    publish,
    staged,
    store_bytes,
)

from penstock.contract.codes import ErrorCode
from penstock_server.domain.pages import Page, PageRequest
from penstock_server.domain.samples.schemas import SampleRead
from penstock_server.domain.samples.service import SampleService
from penstock_server.errors import ServerError
from penstock_server.manifests.copies import QueryCopies, copy_path
from penstock_server.manifests.query_copy import shuffle_keys
from penstock_server.policy import Actor

ROWS = items(60)


class Browser:
    """A dataset with one version, browsed as the API does it."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.dataset_id = create_dataset(parts)
        self.version = publish(parts, self.dataset_id, [staged(self.dataset_id, ROWS)])
        self.copies = QueryCopies(parts.settings.data_folder)
        self.actor: Actor = actor_of(parts)

    def service(self, call: Callable[[SampleService], Any]) -> Any:
        with self.parts.catalog.unit(is_read_only=True) as unit:
            return call(SampleService(unit, self.parts.store, self.parts.bus, self.copies))

    def page(self, limit: int = 500, cursor: str | None = None, **options: Any) -> Page[SampleRead]:
        request = PageRequest(limit=limit, cursor=cursor)
        page: Page[SampleRead] = self.service(
            lambda service: service.page("demo", "latest", request, actor=self.actor, **options)
        )
        return page

    def keys(self, **options: Any) -> list[str]:
        return [sample.key for sample in self.page(**options).items]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """For tests that only look."""
    opened = open_parts(embedded_settings(tmp_path_factory.mktemp("browse")))
    yield Browser(opened)
    opened.close()


@pytest.fixture
def fresh(parts: Parts) -> Browser:
    """For tests that change something."""
    return Browser(parts)


def test_sample_shows_values_not_codes(browser: Browser) -> None:
    sample = browser.page(filter_text="key = '00004.png'").items[0]
    assert (sample.source, sample.key, sample.row, sample.label) == ("slide00", "00004.png", 4, "yes")
    assert sample.metadata["patient"] == "p00"
    assert sample.metadata["tags"] == ["ink"]
    assert sample.metadata["age"] == 24
    assert sample.fields[0].model_dump() == {
        "name": "image", "kind": "image", "media_type": "image/png", "size": 27, "width": 96, "height": 64,
    }  # fmt: skip
    assert sample.thumbnail_url == (f"/api/v1/datasets/{browser.dataset_id}/versions/1/samples/{sample.id}/thumbnail")


@pytest.mark.parametrize(
    "order", ["plan", "random", "age", "-age", "tumor", "remark", "-taken", "key", "width", "source"]
)
@pytest.mark.parametrize("seed", [0, 5])
def test_pages_walk_every_sample_once_forwards_and_backwards(browser: Browser, order: str, seed: int) -> None:
    whole = browser.keys(order_name=order, seed=seed)
    assert sorted(whole) == [item.key for item in ROWS]
    walked, cursor, pages = [], None, []
    while True:
        page = browser.page(7, cursor, order_name=order, seed=seed)
        pages.append(page)
        walked += [sample.key for sample in page.items]
        assert page.total == len(ROWS)
        if page.next_cursor is None:
            break
        cursor = page.next_cursor
    assert walked == whole
    assert pages[0].prev_cursor is None
    back = browser.page(7, pages[-1].prev_cursor, order_name=order, seed=seed)
    assert [sample.key for sample in back.items] == [sample.key for sample in pages[-2].items]
    assert back.next_cursor is not None


def test_orders_are_the_orders_they_say(browser: Browser) -> None:
    assert browser.keys(order_name="plan") == [item.key for item in ROWS]
    ages = [sample.metadata["age"] for sample in browser.page(order_name="age").items]
    known = [age for age in ages if age is not None]
    assert known == sorted(known)
    assert ages[len(known) :] == [None] * (len(ages) - len(known))
    falling = [sample.metadata["age"] for sample in browser.page(order_name="-age").items]
    assert falling == [*reversed(known), *ages[len(known) :]]
    assert browser.keys(order_name="random") != browser.keys(order_name="plan")
    assert browser.keys(order_name="random", seed=1) != browser.keys(order_name="random", seed=2)


def test_random_order_of_old_samples_survives_appending(fresh: Browser) -> None:
    before = fresh.keys(order_name="random")
    more = [replace(item, key=f"z{item.key}") for item in items(20)]
    publish(fresh.parts, fresh.dataset_id, [staged(fresh.dataset_id, more)], parent=1)
    after = [key for key in fresh.keys(order_name="random") if not key.startswith("z")]
    assert after == before


def test_shuffle_keys_golden_vector() -> None:
    ids = np.frombuffer(bytes(range(32)), dtype=np.uint8).reshape(2, 16)
    assert shuffle_keys(ids).tolist() == [12745416310830043150, 13152856711714637881]


def test_offset_jumps_and_its_cursors_go_on(browser: Browser) -> None:
    whole = browser.keys(order_name="random")
    page = browser.page(5, offset=20, order_name="random")
    assert [sample.key for sample in page.items] == whole[20:25]
    following = browser.page(5, page.next_cursor, order_name="random")
    assert [sample.key for sample in following.items] == whole[25:30]
    before = browser.page(5, page.prev_cursor, order_name="random")
    assert [sample.key for sample in before.items] == whole[15:20]
    assert browser.page(5, offset=1000).items == []


def test_cursor_of_another_list_and_a_damaged_one_are_refused(browser: Browser) -> None:
    cursor = browser.page(5, order_name="random").next_cursor
    assert cursor is not None
    bad = [("plan", cursor), ("random", cursor[:-3]), ("random", "!!!"), ("random", "W10"), ("random", "e30")]
    for order, text in bad:
        with pytest.raises(ServerError) as caught:
            browser.page(5, text, order_name=order)
        assert caught.value.code == ErrorCode.REQUEST_INVALID
    with pytest.raises(ServerError) as caught:
        browser.page(5, cursor, offset=3)
    assert caught.value.code == ErrorCode.REQUEST_INVALID


@pytest.mark.parametrize("order", ["tags", "nope", "--age", "age; DROP", ""])
def test_unknown_order_is_refused(browser: Browser, order: str) -> None:
    with pytest.raises(ServerError) as caught:
        browser.page(order_name=order)
    assert caught.value.code == ErrorCode.REQUEST_INVALID


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("tumor = 'yes'", lambda item: item.tumor == 1),
        ("tumor LIKE '%e%' AND age >= 30", lambda item: item.tumor == 1 and (item.age or 0) >= 30),
        ("patient IN ('p01', 'p03')", lambda item: item.patient in (1, 3)),
        ("tags = 'ink' OR tags IS NULL", lambda item: item.tags is None or 1 in item.tags),
        ("tags != 'ink'", lambda item: item.tags is None or 1 not in item.tags),
        ("age IS NULL", lambda item: item.age is None),
        ("NOT age = 24", lambda item: item.age not in (None, 24)),
        ("checked", lambda item: item.checked is True),
        ("remark LIKE 'remark 3'", lambda item: item.remark == "remark 3"),
        ("taken > '2023-11-14T22:13:20.000030Z'", lambda item: (item.taken or 0) > 1_700_000_000_000_030),
        ("score BETWEEN 1 AND 2", lambda item: item.score is not None and 1 <= item.score <= 2),
        ("width = 96 AND height != 64", lambda item: False),
    ],
)
def test_filter_selects_what_python_selects(browser: Browser, text: str, matches: Callable[[Any], bool]) -> None:
    page = browser.page(filter_text=text, order_name="plan")
    expected = [item.key for item in ROWS if matches(item)]
    assert [sample.key for sample in page.items] == expected
    assert page.total == len(expected)


def test_facets_count_values_and_ranges(browser: Browser) -> None:
    answer = browser.service(
        lambda service: service.facets(
            "demo", "1", columns=["tumor", "tags", "age", "checked", "taken"], filter_text="patient = 'p00'",
            actor=browser.actor,
        )
    )  # fmt: skip
    chosen = [item for item in ROWS if item.patient == 0]
    assert answer.total == len(chosen)
    facets = {facet.column: facet for facet in answer.facets}
    counts = {value.value: value.count for value in facets["tumor"].values}
    assert counts == {"yes": sum(item.tumor == 1 for item in chosen), "no": sum(item.tumor == 0 for item in chosen)}
    ages = [item.age for item in chosen if item.age is not None]
    assert (facets["age"].min, facets["age"].max, facets["age"].values) == (min(ages), max(ages), None)
    assert {value.value for value in facets["checked"].values} == {True, False, None}
    assert facets["taken"].min.startswith("2023-11-14T22:13:20")
    with pytest.raises(ServerError) as caught:
        browser.service(
            lambda service: service.facets("demo", "1", columns=["nope"], filter_text=None, actor=browser.actor)
        )
    assert caught.value.code == ErrorCode.REQUEST_INVALID


def test_copy_is_rebuilt_when_absent_or_damaged(fresh: Browser) -> None:
    before = fresh.keys(order_name="random")
    path = copy_path(fresh.parts.settings.data_folder, fresh.version.id)
    for damage in (path.unlink, lambda: path.write_bytes(b"not a database" * 500)):
        damage()
        fresh.copies = QueryCopies(fresh.parts.settings.data_folder)
        assert fresh.keys(order_name="random") == before


def test_copy_cannot_reach_other_files(browser: Browser) -> None:
    browser.page()
    (copy,) = browser.copies._open.values()
    for statement in (
        "SELECT * FROM read_text('/etc/passwd')",
        "SET enable_external_access = true",
        "DROP TABLE samples",
    ):
        with pytest.raises(duckdb.Error):
            copy._rows(statement, ())


def test_replaced_samples_are_gone_from_the_new_version_only(fresh: Browser) -> None:
    changed = replace(ROWS[7], image=b"changed")
    publish(fresh.parts, fresh.dataset_id, [staged(fresh.dataset_id, [changed])], parent=1)
    old = fresh.service(
        lambda service: service.page("demo", "1", PageRequest(limit=500), actor=fresh.actor, order_name="plan")
    )
    new = fresh.page(order_name="plan")
    assert [sample.key for sample in new.items] == [sample.key for sample in old.items]
    assert old.items[7].row == 7
    assert new.items[7].row == 60
    assert new.items[7].id != old.items[7].id


def test_bytes_and_thumbnail_come_back_and_unknown_ones_are_named(fresh: Browser) -> None:
    store_bytes(fresh.parts, fresh.dataset_id, ROWS[:3])
    sample = fresh.page(filter_text="key = '00002.png'").items[0]
    detail = fresh.service(lambda service: service.get("demo", "1", sample.id, actor=fresh.actor))
    assert len(detail.fields[0].xxh3) == 16
    found = fresh.service(lambda service: service.field("demo", "1", sample.id, "image", actor=fresh.actor))
    assert (found.data, found.media_type) == (ROWS[2].image, "image/png")
    note = fresh.service(lambda service: service.field("demo", "1", sample.id, "note", actor=fresh.actor))
    assert note.media_type == "application/octet-stream"
    assert fresh.service(lambda service: service.thumbnail("demo", "1", sample.id, actor=fresh.actor))[:4] == b"RIFF"
    cases = [
        (lambda service: service.field("demo", "1", sample.id, "nope", actor=fresh.actor), "sample.field_not_found"),
        (lambda service: service.get("demo", "1", fresh.dataset_id, actor=fresh.actor), "sample.not_found"),
        (lambda service: service.get("demo", "9", sample.id, actor=fresh.actor), "version.not_found"),
        (lambda service: service.get("demo", "x", sample.id, actor=fresh.actor), "version.not_found"),
        (lambda service: service.get("nope", "1", sample.id, actor=fresh.actor), "dataset.not_found"),
    ]
    for call, code in cases:
        with pytest.raises(ServerError) as caught:
            fresh.service(call)
        assert caught.value.code == code


@settings(max_examples=25, deadline=None)
@given(limit=st.integers(1, 70), offset=st.integers(0, 70), seed=st.integers(0, 2**63 - 1))
def test_any_page_is_a_slice_of_the_whole(browser: Browser, limit: int, offset: int, seed: int) -> None:
    whole = browser.keys(order_name="random", seed=seed)
    assert browser.keys(limit=limit, offset=offset, order_name="random", seed=seed) == whole[offset : offset + limit]
