"""The live page: shows the mirror and the forecasts to people; `numazones_page` draws it."""
