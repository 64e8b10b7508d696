"""Parts common to all pages: sign-in, navigation, light and dark mode, and live updates."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from support.accessibility import accessibility_violations
from support.browser_tabs import PHONE, DashboardSite, Tab

PATHS = (
    *("/", "/queues", "/runs", "/flows", "/workers"),
    *("/schedules", "/coordination", "/alerts", "/audit"),
)


def test_login_returns_to_requested_page_until_logout(
    open_tab: Callable[..., Tab], dashboard_site: DashboardSite
) -> None:
    tab = open_tab(None)
    tab.expected = ["401"]
    page = tab.goto("/runs?state=failed")
    expect(page).to_have_url(re.compile(r"/login\?next=%2Fruns%3Fstate%3Dfailed$"))
    page.get_by_label("Token").fill("rota_nothing")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("the token is invalid")).to_be_visible()
    page.get_by_label("Token").fill(dashboard_site.passes["viewer"])
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(f"{dashboard_site.url}/runs?state=failed")
    page.get_by_role("button", name="Log out").click()
    expect(page).to_have_url(f"{dashboard_site.url}/login")
    tab.goto("/")
    expect(page).to_have_url(re.compile("/login"))


def test_login_cookie_is_not_readable_by_scripts(
    open_tab: Callable[..., Tab], dashboard_site: DashboardSite
) -> None:
    tab = open_tab(None)
    page = tab.goto("/login")
    page.get_by_label("Token").fill(dashboard_site.passes["viewer"])
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
def test_login_next_of_other_site_leads_to_overview(
    open_tab: Callable[..., Tab], dashboard_site: DashboardSite, next: str
) -> None:
    page = open_tab(None).goto(f"/login?next={next}")
    page.get_by_label("Token").fill(dashboard_site.passes["viewer"])
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(f"{dashboard_site.url}/")


def test_keyboard_shortcuts_open_pages_search_and_help(
    admin_tab: Tab, dashboard_site: DashboardSite
) -> None:
    page = admin_tab.goto("/")
    page.keyboard.press("g")
    page.keyboard.press("q")
    expect(page).to_have_url(f"{dashboard_site.url}/queues")
    expect(page.get_by_role("link", name="Queues")).to_have_attribute("aria-current", "page")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox", name="Find a run")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_text("j, k move")).to_be_visible()


def test_color_scheme_is_kept_between_pages(admin_tab: Tab) -> None:
    page = admin_tab.goto("/")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Light or dark").click()
    dark = page.evaluate(ground)
    assert light != dark
    admin_tab.goto("/queues")
    assert page.evaluate(ground) == dark


def test_unknown_page_shows_not_found_page(admin_tab: Tab) -> None:
    admin_tab.expected = ["404"]
    page = admin_tab.goto("/runs/999999999999")
    expect(page.get_by_role("heading", name="Page not found")).to_be_visible()
    page = admin_tab.goto("/no/such/page")
    expect(page.get_by_role("heading", name="Page not found")).to_be_visible()
    page.get_by_role("link", name="to the overview").click()
    expect(page.get_by_role("navigation", name="Main")).to_be_visible()


@pytest.mark.parametrize("path", PATHS)
def test_pages_have_strict_policy_and_no_inline_code(
    dashboard_site: DashboardSite, path: str
) -> None:
    request = urllib.request.Request(
        dashboard_site.url + path,
        headers={"Authorization": f"Bearer {dashboard_site.passes['admin']}"},
    )
    with urllib.request.urlopen(request) as answer:
        policy, text = answer.headers["Content-Security-Policy"], answer.read().decode()
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"<script(?![^>]*\bsrc=)|\sstyle=|\son\w+=|javascript:", text)


@pytest.mark.parametrize("path", PATHS)
def test_pages_are_accessible_in_dark_mode_and_on_phones(admin_tab: Tab, path: str) -> None:
    page = admin_tab.goto(path)
    expect(page.get_by_role("navigation", name="Main")).to_be_visible()
    assert accessibility_violations(page) == []
    page.emulate_media(color_scheme="dark")
    assert accessibility_violations(page, "color-contrast") == []
    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]


def test_post_from_other_origin_is_refused(dashboard_site: DashboardSite) -> None:
    request = urllib.request.Request(
        f"{dashboard_site.url}/api/v1/runs",
        b'{"name": "greet", "input": {"name": "Ada"}}',
        {
            "Cookie": f"rota_token={dashboard_site.passes['admin']}",
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


def test_live_update_keeps_focus_dialog_and_input_state(admin_tab: Tab) -> None:
    page = admin_tab.goto("/audit")
    row = '<p data-key="{0}"><input id="in-{0}"></p>'.format
    before, after = row("a") + row("b") + row("c"), row("b") + row("c") + row("d")
    seen = page.evaluate(MORPH, [before, after, "#in-b"])
    assert (seen["html"], seen["focus"]) == (after, "in-b")

    rest = '<dialog data-key="d"></dialog><button class="sent">go</button>'
    rest += "<details open><summary>s</summary></details>"
    seen = page.evaluate(MORPH, ['<p data-key="x"></p>' + rest, "<p>new</p>" + rest, None])
    assert (seen["modal"], seen["sent"], seen["open"]) == (True, True, False)


def test_live_update_duplicate_keys_are_both_shown(admin_tab: Tab) -> None:
    page = admin_tab.goto("/audit")
    twice = '<p data-key="a">1</p><p data-key="a">2</p>'
    seen = page.evaluate(MORPH, ['<p data-key="a">0</p>', twice, None])
    assert seen["html"] == twice
