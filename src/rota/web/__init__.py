"""What others reach over HTTP: health, metrics, the API. Needs `rota[web]`."""
