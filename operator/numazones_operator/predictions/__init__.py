"""Predictions for pods without a node: forecasts, AdmissionPredictions, events on changed verdicts."""
