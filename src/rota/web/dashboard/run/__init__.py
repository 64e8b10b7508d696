"""The page of one run: graph, timeline, jobs and events."""
