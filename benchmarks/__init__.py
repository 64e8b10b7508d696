"""Rota against its peers, as ratios on one machine in one run. See README.md."""
