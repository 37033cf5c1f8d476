"""A person's way through the page, in a real browser, on both ways to run."""

import contextlib
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect

from harness.deployments import Deployment
from harness.penstock_processes import start_program
from harness.run import ROOT

AXE = (ROOT / "frontend" / "node_modules" / "axe-core" / "axe.min.js").read_text()
RULES = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]
WAIT_MS = 30_000
SLOW_READER = """
import sys, time, penstock
client = penstock.Client()
loader = client.loader("demo", split="train", batch_size=32, shuffle=True, output="numpy", run=sys.argv[1])
while True:
    for batch in loader:
        time.sleep(0.05)
"""


@pytest.fixture
def context(browser: Browser, deployment: Deployment) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(WAIT_MS)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext, deployment: Deployment) -> Iterator[Page]:
    """Logged in, and failing on anything that the browser complained of."""
    page = context.new_page()
    complaints: list[str] = []

    def note(message: ConsoleMessage) -> None:
        # The browser notes every refused request; what the page makes of a refusal is what the tests look at.
        if message.type == "error" and "status of 4" not in message.text:
            complaints.append(message.text)

    page.on("console", note)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(deployment.login_link())
    expect(page.get_by_role("heading", name="Datasets")).to_be_visible(timeout=WAIT_MS)
    yield page
    assert complaints == []


@contextlib.contextmanager
def running_loader(deployment: Deployment, run: str) -> Iterator[None]:
    loader = start_program(deployment.run, "loader", [sys.executable, "-c", SLOW_READER, run], deployment.settings)
    try:
        yield
    finally:
        loader.stop()


def open_demo(page: Page) -> None:
    page.get_by_role("link", name=re.compile(r"^demo")).first.click()
    expect(page.get_by_role("grid", name="Samples")).to_be_visible(timeout=WAIT_MS)
    expect(page.get_by_role("grid", name="Samples").get_by_role("button").first).to_be_visible(timeout=WAIT_MS)


def wait_for_thumbnails(page: Page) -> None:
    """Until the pictures that are in view have arrived."""
    deadline = time.monotonic() + WAIT_MS / 1000
    while time.monotonic() < deadline:
        pictures = page.get_by_role("grid", name="Samples").locator("img").all()
        if pictures and all(
            picture.evaluate("image => image.complete && image.naturalWidth > 0") for picture in pictures[:12]
        ):
            return
        time.sleep(0.1)
    raise AssertionError("the thumbnails did not arrive")


@dataclass
class AxeScan:
    """Looks at one place after the other, keeps a picture of each and what axe has against it."""

    page: Page
    url: str
    theme: str
    pictures: Path
    problems: dict[str, list[str]] = field(default_factory=dict)

    def open(self, path: str) -> None:
        self.page.goto(f"{self.url}{path}")
        expect(self.page.get_by_role("heading").first).to_be_visible(timeout=WAIT_MS)

    def look(self, name: str) -> None:
        # Half faded in, a colour has less contrast than it ends with.
        self.page.wait_for_timeout(1_000)
        self.page.screenshot(path=self.pictures / f"{self.theme}-{name}.png")
        if found := violations(self.page):
            self.problems[name] = found


def violations(page: Page) -> list[str]:
    page.evaluate(AXE)
    found: dict[str, Any] = page.evaluate("rules => axe.run(document, {runOnly: {type: 'tag', values: rules}})", RULES)
    return [f"{item['id']}: {node['html'][:160]}" for item in found["violations"] for node in item["nodes"]]


@pytest.fixture(params=["light", "dark"])
def scan(
    request: pytest.FixtureRequest, browser: Browser, deployment: Deployment, screenshots: Path
) -> Iterator[AxeScan]:
    # The policy of the page forbids evaluated code; axe is brought in by the test, so it is bypassed for that alone.
    context = browser.new_context(
        viewport={"width": 1440, "height": 900}, color_scheme=request.param, reduced_motion="reduce", bypass_csp=True
    )
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    page.goto(deployment.login_link())
    expect(page.get_by_role("heading", name="Datasets")).to_be_visible(timeout=WAIT_MS)
    pictures = screenshots / deployment.kind
    pictures.mkdir(exist_ok=True)
    yield AxeScan(page, deployment.url, request.param, pictures)
    context.close()


def test_dataset_sample_split_and_versions_can_be_seen(page: Page, deployment: Deployment, screenshots: Path) -> None:
    page.screenshot(path=screenshots / f"{deployment.kind}-datasets.png")
    open_demo(page)
    expect(page.get_by_text(re.compile("3,000 samples")).first).to_be_visible()
    wait_for_thumbnails(page)
    page.screenshot(path=screenshots / f"{deployment.kind}-dataset.png")

    page.get_by_role("grid", name="Samples").get_by_role("button").first.click()
    drawer = page.get_by_role("dialog")
    expect(drawer).to_be_visible()
    expect(drawer.get_by_role("table", name="Metadata").get_by_text("patient")).to_be_visible()
    page.screenshot(path=screenshots / f"{deployment.kind}-sample.png")
    first = drawer.get_by_role("table", name="Identity").inner_text()
    page.keyboard.press("j")
    expect(drawer.get_by_role("table", name="Identity")).not_to_have_text(first)
    page.keyboard.press("Escape")
    expect(drawer).to_be_hidden()

    page.get_by_role("tab", name="Splits").click()
    expect(page.get_by_role("table", name="Subsets").first).to_be_visible()
    expect(page.get_by_text("by-patient").first).to_be_visible()
    page.screenshot(path=screenshots / f"{deployment.kind}-splits.png")
    page.get_by_role("tab", name="Versions").click()
    expect(page.get_by_role("table", name="Versions")).to_be_visible()


def test_filter_narrows_the_grid_and_a_wrong_one_is_explained(page: Page) -> None:
    open_demo(page)
    box = page.get_by_role("textbox", name="Filter")
    box.fill("tumor = 'yes' AND age > 60")
    box.press("Enter")
    expect(page.get_by_text(re.compile(r"[\d,]+ of 3,000"))).to_be_visible()
    box.fill("no_such_column = 1")
    box.press("Enter")
    expect(page.get_by_text(re.compile("no_such_column")).last).to_be_visible()


def test_split_is_made_in_the_browser(page: Page, deployment: Deployment) -> None:
    open_demo(page)
    page.get_by_role("tab", name="Splits").click()
    page.get_by_role("button", name="New split").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox", name="Name", exact=True).fill("from-browser")
    dialog.get_by_role("button", name=re.compile("^(Publish|Create)")).click()
    expect(page.get_by_role("region", name="from-browser@1")).to_be_visible()
    with deployment.client() as client:
        split = client.dataset("demo").find_split("from-browser")
        assert sum(subset.count for subset in split.subsets) == 3_000


def test_running_loader_is_drawn_live(page: Page, deployment: Deployment, screenshots: Path) -> None:
    page.get_by_role("link", name="Live").click()
    expect(page.get_by_role("heading", name="Live")).to_be_visible()
    with running_loader(deployment, f"watched-{deployment.kind}"):
        expect(page.get_by_role("heading", name=f"watched-{deployment.kind}")).to_be_visible(timeout=2 * WAIT_MS)
        rate = page.get_by_test_id("samples-per-second").first
        expect(rate).to_have_text(re.compile(r"[1-9]"), timeout=2 * WAIT_MS)
        before = rate.inner_text()
        # The chart moves: the figure is another one within a few points.
        expect(rate).not_to_have_text(before, timeout=2 * WAIT_MS)
        expect(page.locator("canvas").first).to_be_visible(timeout=WAIT_MS)
        page.screenshot(path=screenshots / f"{deployment.kind}-live.png")


def test_job_of_the_demo_is_listed(page: Page) -> None:
    page.get_by_role("link", name="Jobs").click()
    expect(page.get_by_role("table", name="Jobs").get_by_text("demo").first).to_be_visible()


def test_eight_tabs_all_answer(context: BrowserContext, page: Page, deployment: Deployment) -> None:
    tabs = [context.new_page() for _ in range(7)]
    for tab in tabs:
        tab.goto(f"{deployment.url}/datasets")
    for tab in [page, *tabs]:
        tab.reload()
        expect(tab.get_by_role("heading", name="Datasets")).to_be_visible()


def test_stranger_is_sent_to_the_login_and_a_used_link_is_explained(browser: Browser, deployment: Deployment) -> None:
    context = browser.new_context()
    page = context.new_page()
    link = deployment.login_link_of_the_command()
    page.goto(f"{deployment.url}/datasets/demo")
    expect(page.get_by_text("penstock login-link").first).to_be_visible(timeout=WAIT_MS)
    page.goto(link)
    expect(page.get_by_role("heading", name="Datasets")).to_be_visible(timeout=WAIT_MS)
    context.close()
    second = browser.new_context()
    page = second.new_page()
    page.goto(link)
    expect(page.get_by_role("alert").first).to_be_visible(timeout=WAIT_MS)
    second.close()


def test_pages_pass_axe_in_both_themes(scan: AxeScan) -> None:
    for path in ("/datasets", "/datasets/demo", "/datasets/demo/splits", "/jobs", "/live", "/settings"):
        scan.open(path)
        scan.look(path.strip("/").replace("/", "-"))
    assert scan.problems == {}


def test_what_opens_over_a_page_passes_axe_in_both_themes(scan: AxeScan) -> None:
    page = scan.page
    scan.open("/datasets")
    page.get_by_role("button", name="Add data").first.click()
    expect(page.get_by_role("dialog").get_by_role("textbox", name="Dataset name")).to_be_visible(timeout=WAIT_MS)
    scan.look("add-data")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()

    open_demo(page)
    page.get_by_role("grid", name="Samples").get_by_role("button").first.click()
    expect(page.get_by_role("dialog").get_by_role("table", name="Metadata")).to_be_visible(timeout=WAIT_MS)
    scan.look("sample-drawer")

    scan.open("/datasets/demo/splits")
    page.get_by_role("button", name="New split").first.click()
    expect(page.get_by_role("dialog").get_by_role("textbox", name="Name", exact=True)).to_be_visible()
    scan.look("new-split")
    assert scan.problems == {}


def test_job_and_running_loader_pass_axe_in_both_themes(scan: AxeScan, deployment: Deployment) -> None:
    page = scan.page
    scan.open("/jobs")
    page.get_by_role("table", name="Jobs").get_by_role("link", name=re.compile("demo")).first.click()
    expect(page.get_by_text("Job id")).to_be_visible(timeout=WAIT_MS)
    scan.look("job")

    run = f"scanned-{deployment.kind}-{scan.theme}"
    with running_loader(deployment, run):
        scan.open("/live")
        expect(page.get_by_role("heading", name=run)).to_be_visible(timeout=2 * WAIT_MS)
        rate = page.get_by_test_id("samples-per-second").first
        expect(rate).to_have_text(re.compile(r"[1-9]"), timeout=2 * WAIT_MS)
        expect(page.locator("canvas").first).to_be_visible(timeout=WAIT_MS)
        scan.look("live-running")
    assert scan.problems == {}


@pytest.mark.skipif("PENSTOCK_DOC_PICTURES" not in os.environ, reason="`make screenshots` takes them")
def test_pictures_of_the_documents(browser: Browser, embedded: Deployment) -> None:
    pictures = Path(os.environ["PENSTOCK_DOC_PICTURES"])
    pictures.mkdir(parents=True, exist_ok=True)
    context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    page = context.new_page()
    page.goto(embedded.login_link())
    open_demo(page)
    wait_for_thumbnails(page)
    page.screenshot(path=pictures / "dataset.png")
    page.get_by_role("grid", name="Samples").get_by_role("button").first.click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.wait_for_timeout(500)
    page.screenshot(path=pictures / "sample.png")
    page.keyboard.press("Escape")
    page.get_by_role("tab", name="Splits").click()
    expect(page.get_by_role("table", name="Subsets").first).to_be_visible()
    page.screenshot(path=pictures / "splits.png")
    with running_loader(embedded, "resnet-a"):
        page.get_by_role("link", name="Live").click()
        expect(page.get_by_role("heading", name="resnet-a")).to_be_visible(timeout=2 * WAIT_MS)
        page.wait_for_timeout(40_000)
        page.screenshot(path=pictures / "live.png")
    context.close()
