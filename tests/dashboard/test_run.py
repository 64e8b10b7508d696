"""The page of a run: a live graph, one selection for all parts, payloads as text, and the operators'
actions.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import psycopg
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from .stage import PHONE, Floor, Tab


def box(page: Page, name: str) -> str:
    """Return the class of a job's box, which contains the job's state."""
    found = page.locator("svg.board .job").filter(has=page.get_by_text(name, exact=True))
    return found.get_attribute("class") or ""


def in_state(page: Page, name: str, state: str) -> None:
    found = page.locator(f"svg.board .job.{state}").filter(has=page.get_by_text(name, exact=True))
    expect(found).to_be_visible()


def asleep(floor: Floor, page: Page) -> str:
    """Start a run of the flow `etl`, open its page, and wait until it awaits the approval."""
    run = floor.start("etl", day="run")
    page.goto(f"{floor.url}/runs/{run}")
    in_state(page, "approve", "sleeping")
    return run


def test_the_graph_is_live_and_a_signal_sent_here_sets_it_going(desk: Tab, floor: Floor) -> None:
    run = asleep(floor, page := desk.page)
    in_state(page, "extract", "succeeded")
    in_state(page, "load", "waiting")
    expect(page.get_by_text("waits for signal 'approval'")).to_be_visible()
    page.evaluate("window.same = document.querySelector('svg.board .job')")

    page.get_by_role("button", name="signal…").click()
    dialog = page.get_by_role("dialog", name="Send a signal")
    expect(dialog.get_by_label("name")).to_have_value("approval")
    dialog.get_by_label("payload").fill("true")
    dialog.get_by_role("button", name="send").click()

    in_state(page, "approve", "succeeded")
    in_state(page, "load", "succeeded")
    expect(page.locator(".head .state")).to_have_text("succeeded")
    expect(page.get_by_role("region", name="Events", exact=True)).to_contain_text(
        "signal run approval, by"
    )
    # The page was neither reloaded nor redrawn.
    assert page.evaluate("window.same === document.querySelector('svg.board .job')")
    assert floor.state(run) == "succeeded"


def test_what_is_chosen_in_the_graph_is_shown_beside_it_and_in_the_timeline(
    desk: Tab, floor: Floor
) -> None:
    run = asleep(floor, page := desk.page)
    jobs = {each["task"]: each["job"] for each in floor.ask("GET", f"/runs/{run}")["jobs"]}
    pane = page.get_by_label("Selected job")
    chosen = page.locator("svg.gantt .line[aria-current] .name")

    page.evaluate("window.same = true")
    page.locator("svg.board .job").filter(has_text="transform").click()
    expect(page).to_have_url(f"{floor.url}/runs/{run}?job={jobs['etl.transform']}")
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


def test_the_graph_is_reached_moved_and_opened_with_the_keyboard(desk: Tab, floor: Floor) -> None:
    asleep(floor, page := desk.page)
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


def test_the_graph_is_moved_with_the_mouse_and_that_chooses_nothing(
    desk: Tab, floor: Floor
) -> None:
    run = asleep(floor, page := desk.page)
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
    expect(page).to_have_url(f"{floor.url}/runs/{run}")
    page.mouse.wheel(0, -300)
    page.wait_for_timeout(50)
    larger = job.bounding_box()
    assert larger is not None
    assert larger["width"] > now["width"] * 1.2
    page.get_by_role("button", name="fit").click()
    expect(world).to_have_attribute("transform", before or "")


def test_what_went_in_and_came_out_is_text_and_numbers_are_exact(desk: Tab, floor: Floor) -> None:
    sent = {"large": 12345678901234567890123, "third": 0.1, "page": "<script>window.x=1</script>"}
    run = floor.start("echo", value=sent)
    page = desk.goto(f"/runs/{run}")
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


def test_an_error_is_shown_with_its_traceback_log_and_attempts_and_tried_again(
    desk: Tab, floor: Floor
) -> None:
    run = floor.start("stumble", word="<b>root</b>")
    page = desk.goto(f"/runs/{run}")
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


def test_a_run_is_cancelled_once_that_was_confirmed(desk: Tab, floor: Floor) -> None:
    run = floor.start("hold")
    page = desk.goto(f"/runs/{run}")
    expect(page.locator(".head .state")).to_have_text("running")

    page.get_by_role("button", name="cancel").click()
    expect(page.get_by_role("dialog")).to_contain_text(f"Cancel run {run}?")
    page.get_by_role("button", name="no", exact=True).click()
    assert floor.state(run) == "running"
    page.get_by_role("button", name="cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="cancel").click()

    expect(page.locator(".head .state")).to_have_text("cancelled")
    expect(page.get_by_role("region", name="Events", exact=True)).to_contain_text(
        "cancel run, by admin"
    )


def test_a_failed_flow_is_forked_from_a_task_and_its_job_leads_back(
    desk: Tab, floor: Floor
) -> None:
    run = floor.start("etl", day="broken")
    page = desk.goto(f"/runs/{run}")
    in_state(page, "check", "failed")
    floor.ask("POST", f"/runs/{run}/signals", {"name": "approval", "payload": True})
    in_state(page, "load", "skipped")
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
    in_state(page, "check", "failed")
    expect(page.get_by_role("link", name=f"#{run}")).to_be_visible()


def test_many_alike_are_one_box_that_can_be_opened(desk: Tab, floor: Floor) -> None:
    run = floor.start("crowd", many=4)
    page = desk.goto(f"/runs/{run}")
    in_state(page, "part_* × 30", "succeeded")
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


def test_calls_of_a_job_are_shown_with_their_caller(desk: Tab, floor: Floor) -> None:
    run = asleep(floor, page := desk.page)
    page.locator("[data-live=documents] [data-key=called] a").first.click()

    expect(page.get_by_role("heading", level=1)).to_contain_text("calls of job")
    in_state(page, "etl.transform", "succeeded")
    expect(page.locator("svg.board .job").filter(has_text="fetch")).to_have_count(3)
    page.get_by_role("navigation", name="Where this is").get_by_role("link").last.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("etl.transform")
    expect(page.get_by_role("link", name=f"#{run}")).to_have_count(2)


def test_events_are_filtered_and_stay_so_while_more_happens(desk: Tab, floor: Floor) -> None:
    run = asleep(floor, page := desk.page)
    rows = page.locator("table.events tbody tr:visible")
    page.get_by_placeholder("Filter events").fill("approve")
    expect(rows.filter(has_not_text="approve")).to_have_count(0)
    before = rows.count()
    assert before > 0

    floor.ask("POST", f"/runs/{run}/signals", {"name": "approval", "payload": False})
    expect(page.locator("table.events tbody tr").filter(has_text="load")).not_to_have_count(0)
    expect(rows.filter(has_not_text="approve")).to_have_count(0)
    page.get_by_placeholder("Filter events").fill("nothing like that")
    expect(page.get_by_text("No event fits.")).to_be_visible()
    page.get_by_placeholder("Filter events").fill("")
    page.get_by_label("of a kind").select_option("person")
    expect(rows).to_have_count(1)


def test_a_job_in_quarantine_is_released(desk: Tab, floor: Floor) -> None:
    run = floor.start("unserved")
    with psycopg.connect(floor.dsn) as connection:
        connection.execute(
            "with gone as (delete from rota.queued where job = %s returning *)"
            " insert into rota.quarantine (job, priority, attempt, lost, queue, task, error)"
            " select job, priority, attempt, 3, queue, task, "
            """ '{"type": "Lost", "message": "too many workers"}' from gone""",
            [run],
        )
    page = desk.goto(f"/runs/{run}")
    expect(page.locator(".head .state")).to_have_text("quarantined")

    page.get_by_role("button", name="release").click()
    page.get_by_role("dialog").get_by_role("button", name="release").click()

    expect(page.locator(".head .state")).to_have_text("queued")
    expect(page.get_by_text("no worker serves queue 'nobody'")).to_be_visible()
    floor.ask("POST", f"/runs/{run}/cancel")


def test_viewers_see_where_a_run_is_but_nothing_of_what_it_is_about(
    look_as: Callable[..., Tab], floor: Floor
) -> None:
    run = floor.start("stumble", word="s3cret")
    tab = look_as("viewer")
    page = tab.goto(f"/runs/{run}")
    expect(page.locator(".head .state")).to_have_text("failed")
    floor.ask("POST", f"/runs/{run}/retry")
    expect(page.get_by_text("attempt 2 failed")).to_be_visible()
    expect(page.get_by_text("by admin")).to_have_count(0)

    expect(page.get_by_text("ValueError").first).to_be_visible()
    assert "s3cret" not in page.content()
    for name in ("retry", "cancel", "fork…", "start again…", "signal…"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)


def test_a_run_that_is_not_there_is_a_page_that_says_so(desk: Tab, floor: Floor) -> None:
    desk.expected = ["404"]
    page = desk.goto("/runs/9223372036854775807")
    expect(page.get_by_text("there is no run 9223372036854775807")).to_be_visible()


def test_nothing_keeps_anybody_from_using_it(look_as: Callable[..., Tab], floor: Floor) -> None:
    run = floor.start("etl", day="axe")
    desk = look_as("admin")
    page = desk.goto(f"/runs/{run}")
    in_state(page, "approve", "sleeping")
    job = floor.ask("GET", f"/runs/{run}")["jobs"][1]["job"]
    phone = look_as("admin", viewport={"width": PHONE[0], "height": PHONE[1]}, color_scheme="dark")
    for tab, path in ((desk, f"/runs/{run}?job={job}"), (phone, f"/runs/{job}")):
        page = tab.goto(path)
        found = Axe().run(page).response["violations"]
        serious = [each for each in found if each["impact"] in ("serious", "critical")]
        assert [(each["id"], each["nodes"][0]["html"]) for each in serious] == []
    for path in (f"/runs/{run}?job={job}", f"/runs/{job}"):
        wide = "document.documentElement.scrollWidth <= innerWidth"
        assert phone.goto(path).evaluate(wide), f"{path} is wider than a phone"
