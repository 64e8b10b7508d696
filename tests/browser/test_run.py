"""The page of a run: a live graph, one selection for all parts, payloads as text, and the operators'
actions.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import psycopg
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from support.browser_tabs import PHONE, DashboardSite, Tab


def box(page: Page, name: str) -> str:
    """Return the class of a job's box, which contains the job's state."""
    found = page.locator("svg.board .job").filter(has=page.get_by_text(name, exact=True))
    return found.get_attribute("class") or ""


def expect_job_state(page: Page, name: str, state: str) -> None:
    found = page.locator(f"svg.board .job.{state}").filter(has=page.get_by_text(name, exact=True))
    expect(found).to_be_visible()


def open_run_awaiting_approval(floor: DashboardSite, page: Page) -> str:
    """Start a run of the flow `etl`, open its page, and wait until it awaits the approval."""
    run = floor.start("etl", day="run")
    page.goto(f"{floor.url}/runs/{run}")
    expect_job_state(page, "approve", "sleeping")
    return run


def test_run_page_signal_continues_run_and_updates_graph_live(
    admin_tab: Tab, dashboard_site: DashboardSite
) -> None:
    run = open_run_awaiting_approval(dashboard_site, page := admin_tab.page)
    expect_job_state(page, "extract", "succeeded")
    expect_job_state(page, "load", "waiting")
    expect(page.get_by_text("waits for signal 'approval'")).to_be_visible()
    page.evaluate("window.same = document.querySelector('svg.board .job')")

    page.get_by_role("button", name="signal…").click()
    dialog = page.get_by_role("dialog", name="Send a signal")
    expect(dialog.get_by_label("name")).to_have_value("approval")
    dialog.get_by_label("payload").fill("true")
    dialog.get_by_role("button", name="send").click()

    expect_job_state(page, "approve", "succeeded")
    expect_job_state(page, "load", "succeeded")
    expect(page.locator(".head .state")).to_have_text("succeeded")
    expect(page.get_by_role("region", name="Events", exact=True)).to_contain_text(
        "signal run approval, by"
    )
    # The page was neither reloaded nor redrawn.
    assert page.evaluate("window.same === document.querySelector('svg.board .job')")
    assert dashboard_site.state(run) == "succeeded"


def test_run_page_graph_and_timeline_share_the_selected_job(
    admin_tab: Tab, dashboard_site: DashboardSite
) -> None:
    run = open_run_awaiting_approval(dashboard_site, page := admin_tab.page)
    jobs = {each["task"]: each["job"] for each in dashboard_site.ask("GET", f"/runs/{run}")["jobs"]}
    pane = page.get_by_label("Selected job")
    chosen = page.locator("svg.gantt .line[aria-current] .name")

    page.evaluate("window.same = true")
    page.locator("svg.board .job").filter(has_text="transform").click()
    expect(page).to_have_url(f"{dashboard_site.url}/runs/{run}?job={jobs['etl.transform']}")
    expect(pane.get_by_role("heading")).to_have_text(
        [re.compile("etl.transform"), "input", "result", "called runs"]
    )
    expect(chosen).to_have_text(["transform"])

    page.locator("svg.gantt .line").filter(has_text="extract").click()
    expect(pane).to_contain_text("etl.extract")
    expect(page.locator("svg.board .job[aria-current] .name")).to_have_text(["extract"])

    page.go_back()
    expect(pane).to_contain_text("etl.transform")
    expect(chosen).to_have_text(["transform"])
    assert page.evaluate("window.same")  # no reload
    page.reload()
    expect(pane).to_contain_text("etl.transform")
    expect(page.locator("svg.board .job[aria-current] .name")).to_have_text(["transform"])


def test_run_page_graph_is_usable_with_the_keyboard(
    admin_tab: Tab, dashboard_site: DashboardSite
) -> None:
    open_run_awaiting_approval(dashboard_site, page := admin_tab.page)
    world = page.locator("svg.board .world")

    def moved() -> list[float]:
        page.wait_for_timeout(50)  # until a frame is drawn
        return [float(n) for n in re.findall(r"-?[\d.]+", world.get_attribute("transform") or "")]

    view = page.locator("[data-view]")
    view.focus()
    at = moved()
    page.keyboard.press("ArrowRight")
    assert moved() == [at[0] - 60, at[1], at[2]]
    page.keyboard.press("+")
    assert moved()[2] > at[2]
    page.keyboard.press("0")
    assert moved() == at
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Selected job")).to_contain_text("etl.extract")


def test_run_page_graph_dragged_by_mouse_selects_nothing(
    admin_tab: Tab, dashboard_site: DashboardSite
) -> None:
    run = open_run_awaiting_approval(dashboard_site, page := admin_tab.page)
    world = page.locator("svg.board .world")
    job = page.locator("svg.board .job").filter(has_text="extract")
    area = job.bounding_box()
    assert area is not None
    before = world.get_attribute("transform")

    page.mouse.move(area["x"] + 40, area["y"] + 10)
    page.mouse.down()
    page.mouse.move(area["x"] + 140, area["y"] + 20, steps=4)
    page.mouse.up()

    expect(world).not_to_have_attribute("transform", before or "")
    now = job.bounding_box()
    assert now is not None
    assert abs(now["x"] - area["x"] - 100) < 2
    expect(page).to_have_url(f"{dashboard_site.url}/runs/{run}")
    page.mouse.wheel(0, -300)
    page.wait_for_timeout(50)
    larger = job.bounding_box()
    assert larger is not None
    assert larger["width"] > now["width"] * 1.2
    page.get_by_role("button", name="fit").click()
    expect(world).to_have_attribute("transform", before or "")


def test_run_page_payloads_are_text_with_exact_numbers(
    admin_tab: Tab, dashboard_site: DashboardSite
) -> None:
    sent = {"large": 12345678901234567890123, "third": 0.1, "page": "<script>window.x=1</script>"}
    run = dashboard_site.start("echo", value=sent)
    page = admin_tab.goto(f"/runs/{run}")
    expect(page.locator(".head .state")).to_have_text("succeeded")

    for name in ("Input", "Result"):
        shown = page.get_by_label(name, exact=True)
        expect(shown).to_contain_text('"large": 12345678901234567890123')
        expect(shown).to_contain_text("<script>window.x=1</script>")
    assert page.evaluate("window.x") is None

    page.get_by_role("button", name="start again…").click()
    dialog = page.get_by_role("dialog", name="Start echo again")
    field = dialog.get_by_label("input")
    field.fill('{"value": 98765432109876543210')
    expect(dialog.get_by_role("alert")).to_contain_text("this is not valid JSON")
    field.fill("[1]")
    expect(dialog.get_by_role("alert")).to_contain_text("the input must be a JSON object")
    dialog.get_by_role("button", name="start").click()
    expect(dialog).to_be_visible()
    field.fill('{"value": 98765432109876543210}')
    dialog.get_by_role("button", name="start").click()
    expect(page).not_to_have_url(re.compile(f"/runs/{run}"))
    expect(page.get_by_label("Result", exact=True)).to_have_text("98765432109876543210")


def test_run_page_failed_run_shows_error_and_is_retried_and_forked(
    admin_tab: Tab, dashboard_site: DashboardSite
) -> None:
    run = dashboard_site.start("stumble", word="<b>root</b>")
    page = admin_tab.goto(f"/runs/{run}")
    expect(page.locator(".head .state")).to_have_text("failed")

    expect(page.get_by_text("ValueError: stumbled over <b>root</b>").first).to_be_visible()
    expect(page.get_by_label("Traceback")).to_contain_text("in stumble")
    expect(page.get_by_role("log")).to_contain_text("about to stumble over <b>root</b>")
    attempts = page.locator("[data-key=attempts] tbody tr")
    many = attempts.count()
    page.get_by_role("button", name="retry").click()
    expect(page.get_by_text("queued for a retry")).to_be_visible()
    expect(attempts).to_have_count(many + 1)

    page.get_by_role("button", name="fork…").click()
    dialog = page.get_by_role("dialog", name=f"Fork run {run}")
    expect(dialog.get_by_label("from step")).to_have_value("look")
    dialog.get_by_label("input").fill('{"word": "a twig"}')
    dialog.get_by_role("button", name="fork").click()
    expect(page.get_by_text("ValueError: stumbled over a twig").first).to_be_visible()
    expect(page.get_by_role("link", name=f"#{run}")).to_be_visible()


def test_run_page_cancel_needs_confirmation(admin_tab: Tab, dashboard_site: DashboardSite) -> None:
    run = dashboard_site.start("hold")
    page = admin_tab.goto(f"/runs/{run}")
    expect(page.locator(".head .state")).to_have_text("running")

    page.get_by_role("button", name="cancel").click()
    expect(page.get_by_role("dialog")).to_contain_text(f"Cancel run {run}?")
    page.get_by_role("button", name="no", exact=True).click()
    assert dashboard_site.state(run) == "running"
    page.get_by_role("button", name="cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="cancel").click()

    expect(page.locator(".head .state")).to_have_text("cancelled")
    expect(page.get_by_role("region", name="Events", exact=True)).to_contain_text(
        "cancel run, by admin"
    )


def test_run_page_failed_flow_is_forked_from_a_task(
    admin_tab: Tab, dashboard_site: DashboardSite
) -> None:
    run = dashboard_site.start("etl", day="broken")
    page = admin_tab.goto(f"/runs/{run}")
    expect_job_state(page, "check", "failed")
    dashboard_site.ask("POST", f"/runs/{run}/signals", {"name": "approval", "payload": True})
    expect_job_state(page, "load", "skipped")
    expect(page.get_by_role("heading", name="Error of check")).to_be_visible()

    page.locator("[data-key=error] a").click()
    pane = page.get_by_label("Selected job")
    pane.get_by_role("link", name="etl.check").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("etl.check")
    page.get_by_role("navigation", name="Where this is").get_by_role("link", name="etl").click()
    expect(page).to_have_url(re.compile(rf"/runs/{run}\?job="))

    page.get_by_role("button", name="fork…").click()
    dialog = page.get_by_role("dialog", name=f"Fork run {run}")
    dialog.get_by_label("from task").select_option("check")
    dialog.get_by_role("button", name="fork").click()
    expect(page).not_to_have_url(re.compile(f"/runs/{run}"))
    expect_job_state(page, "check", "failed")
    expect(page.get_by_role("link", name=f"#{run}")).to_be_visible()


def test_run_page_similar_jobs_are_one_box_until_expanded(
    admin_tab: Tab, dashboard_site: DashboardSite
) -> None:
    run = dashboard_site.start("crowd", many=4)
    page = admin_tab.goto(f"/runs/{run}")
    expect_job_state(page, "part_* × 30", "succeeded")
    expect(page.locator("svg.board .job")).to_have_count(3)
    expect(page.locator("svg.gantt .line")).to_have_count(3)

    page.locator("svg.board .job").filter(has_text="part_*").click()
    pane = page.get_by_label("Selected job")
    expect(pane.get_by_role("listitem")).to_have_count(30)
    pane.get_by_role("link", name="draw them one by one").click()

    expect(page.locator("svg.board .job")).to_have_count(32)
    page.locator("svg.board .job").filter(has_text="part_17").click()
    expect(pane).to_contain_text("crowd.part_17")
    page.get_by_role("link", name="fold all").click()
    expect(page.locator("svg.board .job")).to_have_count(3)


def test_run_page_child_runs_are_shown_with_their_caller(
    admin_tab: Tab, dashboard_site: DashboardSite
) -> None:
    run = open_run_awaiting_approval(dashboard_site, page := admin_tab.page)
    page.locator("[data-live=documents] [data-key=called] a").first.click()

    expect(page.get_by_role("heading", level=1)).to_contain_text("calls of job")
    expect_job_state(page, "etl.transform", "succeeded")
    expect(page.locator("svg.board .job").filter(has_text="fetch")).to_have_count(3)
    page.get_by_role("navigation", name="Where this is").get_by_role("link").last.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("etl.transform")
    expect(page.get_by_role("link", name=f"#{run}")).to_have_count(2)


def test_run_page_event_filter_stays_during_live_updates(
    admin_tab: Tab, dashboard_site: DashboardSite
) -> None:
    run = open_run_awaiting_approval(dashboard_site, page := admin_tab.page)
    rows = page.locator("table.events tbody tr:visible")
    page.get_by_placeholder("Filter events").fill("approve")
    expect(rows.filter(has_not_text="approve")).to_have_count(0)
    before = rows.count()
    assert before > 0

    dashboard_site.ask("POST", f"/runs/{run}/signals", {"name": "approval", "payload": False})
    expect(page.locator("table.events tbody tr").filter(has_text="load")).not_to_have_count(0)
    expect(rows.filter(has_not_text="approve")).to_have_count(0)
    page.get_by_placeholder("Filter events").fill("nothing like that")
    expect(page.get_by_text("No event fits.")).to_be_visible()
    page.get_by_placeholder("Filter events").fill("")
    page.get_by_label("of a kind").select_option("person")
    expect(rows).to_have_count(1)


def test_run_page_quarantined_job_is_released(
    admin_tab: Tab, dashboard_site: DashboardSite
) -> None:
    run = dashboard_site.start("unserved")
    with psycopg.connect(dashboard_site.dsn) as connection:
        connection.execute(
            "with gone as (delete from rota.queued where job = %s returning *)"
            " insert into rota.quarantine (job, priority, attempt, crashes, queue, task, error)"
            " select job, priority, attempt, 3, queue, task, "
            """ '{"type": "Lost", "message": "too many workers"}' from gone""",
            [run],
        )
    page = admin_tab.goto(f"/runs/{run}")
    expect(page.locator(".head .state")).to_have_text("quarantined")

    page.get_by_role("button", name="release").click()
    page.get_by_role("dialog").get_by_role("button", name="release").click()

    expect(page.locator(".head .state")).to_have_text("queued")
    expect(page.get_by_text("no worker serves queue 'nobody'")).to_be_visible()
    dashboard_site.ask("POST", f"/runs/{run}/cancel")


def test_run_page_viewer_sees_state_without_payloads_or_actions(
    open_tab: Callable[..., Tab], dashboard_site: DashboardSite
) -> None:
    run = dashboard_site.start("stumble", word="s3cret")
    tab = open_tab("viewer")
    page = tab.goto(f"/runs/{run}")
    expect(page.locator(".head .state")).to_have_text("failed")
    dashboard_site.ask("POST", f"/runs/{run}/retry")
    expect(page.get_by_text("attempt 2 failed")).to_be_visible()
    expect(page.get_by_text("by admin")).to_have_count(0)

    expect(page.get_by_text("ValueError").first).to_be_visible()
    assert "s3cret" not in page.content()
    for name in ("retry", "cancel", "fork…", "start again…", "signal…"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)


def test_run_page_unknown_run_is_not_found(admin_tab: Tab, dashboard_site: DashboardSite) -> None:
    admin_tab.expected = ["404"]
    page = admin_tab.goto("/runs/9223372036854775807")
    expect(page.get_by_text("there is no run 9223372036854775807")).to_be_visible()


def test_run_page_has_no_accessibility_violations(
    open_tab: Callable[..., Tab], dashboard_site: DashboardSite
) -> None:
    run = dashboard_site.start("etl", day="axe")
    desk = open_tab("admin")
    page = desk.goto(f"/runs/{run}")
    expect_job_state(page, "approve", "sleeping")
    job = dashboard_site.ask("GET", f"/runs/{run}")["jobs"][1]["job"]
    phone = open_tab("admin", viewport={"width": PHONE[0], "height": PHONE[1]}, color_scheme="dark")
    for tab, path in ((desk, f"/runs/{run}?job={job}"), (phone, f"/runs/{job}")):
        page = tab.goto(path)
        found = Axe().run(page).response["violations"]
        serious = [each for each in found if each["impact"] in ("serious", "critical")]
        assert [(each["id"], each["nodes"][0]["html"]) for each in serious] == []
    for path in (f"/runs/{run}?job={job}", f"/runs/{job}"):
        wide = "document.documentElement.scrollWidth <= innerWidth"
        assert phone.goto(path).evaluate(wide), f"{path} is wider than a phone"
