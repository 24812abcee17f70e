"""Grafana dashboards of numazones, written with Grafana's own SDK; ``make dashboards`` makes JSON of them."""
