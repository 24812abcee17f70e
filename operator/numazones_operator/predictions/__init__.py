"""What is foreseen for pods that wait: forecasts, AdmissionPredictions, events."""
