"""The process: settings, logs, metrics, limits, workers."""
