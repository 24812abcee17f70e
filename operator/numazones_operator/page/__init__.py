"""The live page: the mirror and the forecasts, shown to people; what it looks like is `numazones_page`'s."""
