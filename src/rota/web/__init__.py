"""HTTP interfaces: health, metrics, the API and the dashboard. Needs `pgrota[web]`."""
