"""Parts common to all pages: sign-in, navigation, light and dark mode, and live updates."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from .stage import PHONE, Floor, Tab
from .usable import faults

PATHS = (
    *("/", "/queues", "/runs", "/flows", "/workers"),
    *("/schedules", "/coordination", "/alerts", "/audit"),
)


def test_a_stranger_is_asked_who_he_is_and_comes_back_to_where_he_was(
    look_as: Callable[..., Tab], floor: Floor
) -> None:
    tab = look_as(None)
    tab.expected = ["401"]
    page = tab.goto("/runs?state=failed")
    expect(page).to_have_url(re.compile(r"/login\?next=%2Fruns%3Fstate%3Dfailed$"))
    page.get_by_label("Token").fill("rota_nothing")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("the token is invalid")).to_be_visible()
    page.get_by_label("Token").fill(floor.passes["viewer"])
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(f"{floor.url}/runs?state=failed")
    page.get_by_role("button", name="Log out").click()
    expect(page).to_have_url(f"{floor.url}/login")
    tab.goto("/")
    expect(page).to_have_url(re.compile("/login"))


def test_no_script_reads_the_token(look_as: Callable[..., Tab], floor: Floor) -> None:
    tab = look_as(None)
    page = tab.goto("/login")
    page.get_by_label("Token").fill(floor.passes["viewer"])
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("navigation", name="Main")).to_be_visible()
    assert page.evaluate("document.cookie") == ""
    [cookie] = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Lax", "/")


@pytest.mark.parametrize(
    "next",
    [
        *("//elsewhere.example", "/\\elsewhere.example", "https://e.example"),
        *("/%09/elsewhere.example", "/{run}/elsewhere.example"),
    ],
)
def test_whoever_comes_in_is_led_to_this_site_only(
    look_as: Callable[..., Tab], floor: Floor, next: str
) -> None:
    page = look_as(None).goto(f"/login?next={next}")
    page.get_by_label("Token").fill(floor.passes["viewer"])
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(f"{floor.url}/")


def test_one_finds_ones_way_with_the_keyboard_alone(desk: Tab, floor: Floor) -> None:
    page = desk.goto("/")
    page.keyboard.press("g")
    page.keyboard.press("q")
    expect(page).to_have_url(f"{floor.url}/queues")
    expect(page.get_by_role("link", name="Queues")).to_have_attribute("aria-current", "page")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox", name="Find a run")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_text("j, k move")).to_be_visible()


def test_light_and_dark_are_kept(desk: Tab) -> None:
    page = desk.goto("/")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Light or dark").click()
    dark = page.evaluate(ground)
    assert light != dark
    desk.goto("/queues")
    assert page.evaluate(ground) == dark


def test_what_is_not_there_is_said_on_a_page(desk: Tab) -> None:
    desk.expected = ["404"]
    page = desk.goto("/runs/999999999999")
    expect(page.get_by_role("heading", name="Page not found")).to_be_visible()
    page = desk.goto("/no/such/page")
    expect(page.get_by_role("heading", name="Page not found")).to_be_visible()
    page.get_by_role("link", name="to the overview").click()
    expect(page.get_by_role("navigation", name="Main")).to_be_visible()


@pytest.mark.parametrize("path", PATHS)
def test_no_page_runs_or_obeys_what_stands_in_it(floor: Floor, path: str) -> None:
    request = urllib.request.Request(
        floor.url + path, headers={"Authorization": f"Bearer {floor.passes['admin']}"}
    )
    with urllib.request.urlopen(request) as answer:
        policy, text = answer.headers["Content-Security-Policy"], answer.read().decode()
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"<script(?![^>]*\bsrc=)|\sstyle=|\son\w+=|javascript:", text)


@pytest.mark.parametrize("path", PATHS)
def test_everybody_can_use_it_by_day_by_night_and_on_a_phone(desk: Tab, path: str) -> None:
    page = desk.goto(path)
    expect(page.get_by_role("navigation", name="Main")).to_be_visible()
    assert faults(page) == []
    page.emulate_media(color_scheme="dark")
    assert faults(page, "color-contrast") == []
    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]


def test_a_page_of_another_origin_changes_nothing(floor: Floor) -> None:
    request = urllib.request.Request(
        f"{floor.url}/api/v1/runs",
        b'{"name": "greet", "input": {"name": "Ada"}}',
        {
            "Cookie": f"rota_token={floor.passes['admin']}",
            "Content-Type": "application/json",
            "Sec-Fetch-Site": "cross-site",
        },
    )
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(request)


MORPH = """
async ([before, after, act]) => {
  const app = document.querySelector("script[src$='app.js']").src;
  const { morph } = await import(app.replace("app.js", "morph.js"));
  const place = document.querySelector("main");
  place.innerHTML = before;
  if (act) place.querySelector(act).focus();
  place.querySelector("dialog")?.showModal();
  for (const button of place.querySelectorAll("button.sent")) button.disabled = true;
  for (const folded of place.querySelectorAll("details")) folded.open = false;
  const modal = () => place.querySelector("dialog")?.matches(":modal") ?? null;
  morph(place, after);
  return {
    html: place.innerHTML,
    focus: document.activeElement?.id ?? "",
    modal: modal(),
    sent: place.querySelector("button.sent")?.disabled ?? null,
    open: place.querySelector("details")?.open ?? null,
  };
}
"""


def test_what_somebody_is_doing_stays_when_something_else_changes(desk: Tab) -> None:
    page = desk.goto("/audit")
    row = '<p data-key="{0}"><input id="in-{0}"></p>'.format
    before, after = row("a") + row("b") + row("c"), row("b") + row("c") + row("d")
    seen = page.evaluate(MORPH, [before, after, "#in-b"])
    assert (seen["html"], seen["focus"]) == (after, "in-b")

    rest = '<dialog data-key="d"></dialog><button class="sent">go</button>'
    rest += "<details open><summary>s</summary></details>"
    seen = page.evaluate(MORPH, ['<p data-key="x"></p>' + rest, "<p>new</p>" + rest, None])
    assert (seen["modal"], seen["sent"], seen["open"]) == (True, True, False)


def test_of_two_with_one_key_both_are_shown(desk: Tab) -> None:
    page = desk.goto("/audit")
    twice = '<p data-key="a">1</p><p data-key="a">2</p>'
    seen = page.evaluate(MORPH, ['<p data-key="a">0</p>', twice, None])
    assert seen["html"] == twice
