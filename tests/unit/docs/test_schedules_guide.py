"""The guide on schedules and the example program work as shown."""

from __future__ import annotations

from support.places import ROOT

PAGE = (ROOT / "docs" / "guides" / "schedules.md").read_text("utf-8")


def test_guide_names_every_schedule_option() -> None:
    import inspect

    from rota import Rota
    from rota.app.schedules import Schedules
    from rota.model.schedule_options import ScheduleChanges

    for name in (*inspect.signature(Rota.schedule).parameters, *ScheduleChanges.__annotations__):
        assert name == "self" or f"`{name}" in PAGE or f"{name}=" in PAGE or name in PAGE, name
    for name, value in vars(Schedules).items():
        if inspect.iscoroutinefunction(value):
            assert f"{name}(" in PAGE, name
