"""Rota compared with its peers, as ratios on one machine in one run. See README.md."""
